package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/capture"
)

// Name is the program's, by which the runtime finds it.
const Name = "lastcall-cni"

// IsCalled reports whether a container runtime has started this process as a plugin.
func IsCalled() bool { return os.Getenv("CNI_COMMAND") != "" }

// Main is the plugin: it reads the configuration from standard input, and writes the result or the error to standard
// output, as CNI wants. about describes the program.
func Main(about string) {
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add:   add,
		Check: check,
		// The rules end with the pod's network namespace, and the plugin keeps nothing else.
		Del:    func(*skel.CmdArgs) error { return nil },
		GC:     func(*skel.CmdArgs) error { return nil },
		Status: func(*skel.CmdArgs) error { return nil },
	}, version.All, about)
}

// configuration is the runtime's standard input.
type configuration struct {
	types.PluginConf
	Runtime struct {
		Annotations map[string]string `json:"io.kubernetes.cri.pod-annotations"`
	} `json:"runtimeConfig"`
}

// parse reads the configuration. The plugin must be called after the one that makes the pod's network.
func parse(stdin []byte) (*configuration, error) {
	c := &configuration{}
	if err := json.Unmarshal(stdin, c); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "read the network configuration", err.Error())
	}
	if err := version.ParsePrevResult(&c.PluginConf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "read the result of the plugin before "+Name, err.Error())
	}
	if c.PrevResult == nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, Name+" is not chained",
			"there is no prevResult: "+Name+" must come after another plugin in the list of plugins")
	}
	return c, nil
}

// rulesOf are the rules of a pod with these annotations; false if it is not marked.
func rulesOf(annotations map[string]string) (rules capture.Config, isMarked bool, err error) {
	text, isMarked := annotations[capture.AnnotationCNI]
	if !isMarked {
		return rules, false, nil
	}
	in := capture.Input{Annotations: annotations}
	for item := range strings.SplitSeq(text, ",") {
		port, err := strconv.ParseUint(item, 10, 16)
		if err != nil || port == 0 {
			return rules, true, fmt.Errorf("annotation %s: %.40q: must be the sidecar's ports, "+
				"comma-separated, as injection writes them", capture.AnnotationCNI, text)
		}
		in.OwnPorts = append(in.OwnPorts, uint16(port))
	}
	rules, err = capture.Resolve(in)
	return rules, true, err
}

// add captures the pod if it is marked, and passes on the result of the plugin before.
func add(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	if rules, isMarked, err := rulesOf(c.Runtime.Annotations); err != nil {
		return failure("read the capture's settings", args, err)
	} else if isMarked {
		if err := within(args.Netns, func() error { return capture.Install(rules) }); err != nil {
			return failure("capture the traffic", args, err)
		}
	}
	return types.PrintResult(c.PrevResult, c.CNIVersion)
}

// check reports an error if the rules of a marked pod are gone.
func check(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	rules, isMarked, err := rulesOf(c.Runtime.Annotations)
	if err != nil {
		return failure("read the capture's settings", args, err)
	}
	if !isMarked || rules.Off {
		return nil
	}
	if err := within(args.Netns, func() error {
		isInstalled, err := capture.IsInstalled()
		if err == nil && !isInstalled {
			err = errors.New("its rules are no longer in the pod's network namespace: delete the pod")
		}
		return err
	}); err != nil {
		return failure("check the capture", args, err)
	}
	return nil
}

// failure names the pod in an error that the kubelet shows.
func failure(doing string, args *skel.CmdArgs, err error) error {
	var pod struct {
		types.CommonArgs
		K8S_POD_NAMESPACE, K8S_POD_NAME types.UnmarshallableString
	}
	pod.IgnoreUnknown = true
	_ = types.LoadArgs(args.Args, &pod)
	text := fmt.Sprintf("lastcall: %s of pod %s/%s", doing, pod.K8S_POD_NAMESPACE, pod.K8S_POD_NAME)
	return types.NewError(types.ErrInternal, text, err.Error())
}

// within runs f in a network namespace.
func within(path string, f func() error) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open the pod's network namespace: %w", err)
	}
	defer func() { _ = file.Close() }()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its goroutine
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the pod's network namespace %s: %w", path, err)
			return
		}
		done <- f()
	}()
	return <-done
}
