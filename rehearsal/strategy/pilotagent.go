package strategy

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// PilotAgentVersion is the version of the module that a pilot-agent was built from; empty if the program does not
// record it.
func PilotAgentVersion(path string) string {
	info, err := buildinfo.ReadFile(path)
	if err != nil || info.Main.Version == "(devel)" {
		return ""
	}
	return info.Main.Version
}

// startPilotAgent starts Istio's agent and its Envoy as a pod's sidecar. There is no control plane: Envoy reads the
// configuration of the rehearsal from a file, which Istio names customConfigFile. Istio alone ends Envoy.
func (env *Env) startPilotAgent(ctx context.Context, p *Pod) (err error) {
	if p.adminPort, err = env.Node.NextPort(); err != nil {
		return err
	}
	admin := node.Loopback(p.adminPort)
	bootstrap, err := envoy.Bootstrap{
		Inbound:   []envoy.Route{{Listen: p.Address, App: node.Loopback(p.AppPort), Protocol: "http"}},
		AccessLog: filepath.Join(p.dir, "access.log"),
	}.Render(admin)
	if err != nil {
		return err
	}
	file, out := filepath.Join(p.dir, "envoy.json"), filepath.Join(p.dir, sidecarLog)
	if err := os.WriteFile(file, bootstrap, 0o644); err != nil {
		return err
	}
	config, _ := json.Marshal(p.proxyConfig(map[string]any{
		"customConfigFile": file, "binaryPath": env.Programs.Envoy,
		"statusPort": p.statusPort, "proxyAdminPort": p.adminPort, "concurrency": envoyWorkers,
		// Nothing listens there: the agent keeps trying, and does not need it for a drain.
		"discoveryAddress": "127.0.0.1:1", "controlPlaneAuthPolicy": "NONE",
	})) // numbers and strings cannot fail
	settings := []string{
		"PROXY_CONFIG=" + string(config),
		"POD_NAME=" + filepath.Base(p.dir), "POD_NAMESPACE=rehearsal", "INSTANCE_IP=127.0.0.1",
		"FILE_MOUNTED_CERTS=true", // it does not ask a control plane for a certificate
	}
	if p.Strategy.Sidecar == ExitOnZero {
		settings = append(settings, exitOnZero)
	}
	// It writes to ./etc and ./var: to the pod's folder.
	command := node.Command{Args: []string{env.Programs.PilotAgent, "proxy", "sidecar"},
		Env: environment(settings...), Dir: p.dir, Output: out}
	if p.Sidecar, err = env.Node.Start(command); err != nil {
		return err
	}
	// Its own readiness needs a control plane.
	if err := awaitReady(ctx, p.Sidecar, "http://"+admin+"/ready", out); err != nil {
		return fmt.Errorf("pilot-agent: %w", err)
	}
	return awaitPort(ctx, p.Sidecar, p.statusPort, out)
}

// hooksNextToIstio returns the preStop hooks of app and sidecar as injection writes them. A native sidecar keeps
// Istio's own: pilot-agent request sends it only to Istio's ports, so lastcall does here.
func (env *Env) hooksNextToIstio(p *Pod) (app, sidecar node.Hook, err error) {
	p.appHook = filepath.Join(p.dir, "lastcall")
	if err := os.Symlink(env.Programs.Lastcall, p.appHook); err != nil {
		return nil, nil, err
	}
	admin, status := node.Loopback(p.adminPort), strconv.Itoa(p.statusPort)
	ports := strconv.Itoa(p.AppPort) + "/http"
	app = env.execHook(p, hookLog, p.appHook, "wait", "--envoy", admin, "--ports", ports, "--report", p.termination)
	own := []string{env.Programs.Lastcall, "wait", "--envoy", admin, "--pilot-agent", status, "--sidecar"}
	if p.Strategy.Sidecar.IsNative() {
		own = []string{env.Programs.Lastcall, "request", "--status-port", status, "POST", "drain"}
	}
	return app, env.execHook(p, "prestop-sidecar.log", own...), nil
}
