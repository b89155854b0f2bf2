package outcome

// Phase is a part of an old pod's end.
type Phase string

// The phases.
const (
	Serving     Phase = "before the deletion"
	InHook      Phase = "while preStop ran"
	Terminating Phase = "after SIGTERM"
	Killed      Phase = "at SIGKILL"
	Gone        Phase = "after the pod's end"
	Elsewhere   Phase = "on the new pod"

	// Of a cluster, where a hook's end may be unknown.
	WhileEnding Phase = "while the pod ended" // in the hook, or after SIGTERM
	Between     Phase = "while no pod ended"  // of a rollout that had begun
)
