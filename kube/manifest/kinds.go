package manifest

import (
	"slices"
	"strings"
)

// kind is a kind of object that makes pods.
type kind struct {
	names  string   // separated by spaces
	groups string   // of the API, separated by spaces; - is the core group
	paths  []string // of its pods: a * is each element of a list or mapping; empty if the object is the pod
	form   form
	end    end
}

// form is the kind of object at a kind's paths.
type form string

const (
	template form = ""         // metadata and spec of a pod
	podSpec  form = "spec"     // a pod's spec
	argo     form = "workflow" // a template of a workflow: a container or a script, and sidecars
	tekton   form = "task"     // steps, each a container
)

// end is how the pods of a kind end.
type end int

const (
	stays  end = iota
	rolls      // one after the other at a rollout, while others serve
	finish     // by themselves, when their work is done
)

const coreGroup = "-"

var (
	inSpec = []string{"spec.template"}
	ofRay  = []string{"headGroupSpec.template", "workerGroupSpecs.*.template"}
)

// kinds are those that make pods, and where these stand in them.
var kinds = []kind{
	{"Pod", coreGroup, []string{""}, template, stays},
	{"PodTemplate", coreGroup, []string{"template"}, template, stays},
	{"ReplicationController", coreGroup, inSpec, template, rolls},
	{"Deployment ReplicaSet", "apps extensions", inSpec, template, rolls},
	{"StatefulSet", "apps apps.kruise.io", inSpec, template, stays},
	{"DaemonSet", "apps extensions apps.kruise.io", inSpec, template, stays},
	{"Job", "batch", inSpec, template, finish},
	{"CronJob", "batch", []string{"spec.jobTemplate.spec.template"}, template, finish},
	{"DeploymentConfig", "apps.openshift.io", inSpec, template, rolls},
	{"Rollout", "argoproj.io", inSpec, template, rolls},
	{"CloneSet", "apps.kruise.io", inSpec, template, rolls},
	{"BroadcastJob", "apps.kruise.io", inSpec, template, finish},
	{"AdvancedCronJob", "apps.kruise.io", []string{
		"spec.template.jobTemplate.spec.template", "spec.template.broadcastJobTemplate.spec.template",
	}, template, finish},
	{"UnitedDeployment", "apps.kruise.io", []string{"spec.template.*.spec.template"}, template, rolls},
	{"SidecarSet", "apps.kruise.io", []string{"spec"}, podSpec, stays},
	{"ScaledJob", "keda.sh", []string{"spec.jobTargetRef.template"}, template, finish},
	{"JobSet", "jobset.x-k8s.io", []string{"spec.replicatedJobs.*.template.spec.template"}, template, finish},
	{"LeaderWorkerSet", "leaderworkerset.x-k8s.io", []string{
		"spec.leaderWorkerTemplate.leaderTemplate", "spec.leaderWorkerTemplate.workerTemplate",
	}, template, stays},
	{"RayCluster", "ray.io", inEach("spec", ofRay), template, stays},
	{"RayService", "ray.io", inEach("spec.rayClusterConfig", ofRay), template, stays},
	{"RayJob", "ray.io", append(inEach("spec.rayClusterSpec", ofRay), "spec.submitterPodTemplate"), template, finish},
	{"SparkApplication", "sparkoperator.k8s.io", []string{"spec.driver.template", "spec.executor.template"},
		template, finish},
	{"ScheduledSparkApplication", "sparkoperator.k8s.io", []string{
		"spec.template.driver.template", "spec.template.executor.template",
	}, template, finish},
	{"Job", "batch.volcano.sh", []string{"spec.tasks.*.template"}, template, finish},
	{"TFJob PyTorchJob MPIJob", "kubeflow.org", []string{"spec.tfReplicaSpecs.*.template",
		"spec.pytorchReplicaSpecs.*.template", "spec.mpiReplicaSpecs.*.template"}, template, finish},
	{"GameServer", "agones.dev", inSpec, template, stays},
	{"Fleet", "agones.dev", []string{"spec.template.spec.template"}, template, stays},
	{"Sandbox", "agents.x-k8s.io", []string{"spec.podTemplate"}, template, stays},
	{"Service Configuration", "serving.knative.dev", inSpec, template, stays},
	{"Revision", "serving.knative.dev", []string{""}, template, stays},
	{"InferenceService", "serving.kserve.io", []string{"spec.predictor", "spec.transformer", "spec.explainer"},
		podSpec, stays},
	{"Workflow WorkflowTemplate ClusterWorkflowTemplate", "argoproj.io", []string{"spec.templates.*"}, argo, finish},
	{"CronWorkflow", "argoproj.io", []string{"spec.workflowSpec.templates.*"}, argo, finish},
	{"Task ClusterTask", "tekton.dev", []string{"spec"}, tekton, finish},
	{"TaskRun", "tekton.dev", []string{"spec.taskSpec"}, tekton, finish},
	{"Pipeline", "tekton.dev", []string{"spec.tasks.*.taskSpec"}, tekton, finish},
	{"PipelineRun", "tekton.dev", []string{"spec.pipelineSpec.tasks.*.taskSpec"}, tekton, finish},
}

func inEach(parent string, paths []string) (all []string) {
	for _, p := range paths {
		all = append(all, parent+"."+p)
	}
	return all
}

// kindOf is the kind of an object, nil if it is not known to make pods.
func kindOf(o *Object) *kind {
	i := slices.IndexFunc(kinds, func(k kind) bool {
		return slices.Contains(strings.Fields(k.names), o.Kind) &&
			slices.ContainsFunc(strings.Fields(k.groups), func(g string) bool { return o.Group() == strings.Trim(g, coreGroup) })
	})
	if i < 0 {
		return nil
	}
	return &kinds[i]
}
