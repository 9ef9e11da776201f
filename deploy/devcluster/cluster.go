package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

const (
	// readyTimeout bounds a start; two busy cores need about ten seconds.
	readyTimeout = 2 * time.Minute

	// A child that takes longer to stop is killed.
	apiserverGrace = 30 * time.Second
	etcdGrace      = 15 * time.Second
)

// Cluster is one running etcd and kube-apiserver.
type Cluster struct {
	// Immutable once started.
	opts  Options
	dir   Dir
	state State
	say   Narrator
	stop  context.CancelFunc // ends Run

	// Owned by the goroutine that calls Up.
	etcd      *Process
	apiserver *Process
	ready     bool             // as far as we know: it was, and both children are still there
	waiting   []restartRequest // restarted, not yet ready

	// From the control socket to Run. Never closed.
	restartc chan restartRequest
}

type restartRequest struct {
	kill bool
	errc chan<- error // has room for one
}

// Run starts the cluster and keeps it running until ctx ends. That the first
// start fails is an error; a child that dies later is started again after
// Options.RestartDelay, as often as it takes.
func (c *Cluster) Run(ctx context.Context) error {
	if err := c.dir.writePid("devcluster", os.Getpid()); err != nil {
		return err
	}
	defer c.dir.remove("devcluster.pid")
	socket, err := listenControl(c.dir)
	if err != nil {
		return err
	}
	defer c.dir.remove(controlSock)
	defer socket.Close()
	go c.serveControl(socket)

	defer c.stopChildren()
	if err := c.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before it was ready
		}
		return err
	}
	if c.opts.ServiceAccounts {
		var keeping sync.WaitGroup
		defer keeping.Wait()
		keeping.Go(func() { c.keepAccounts(ctx) })
	}
	fmt.Printf("devcluster ready: %s kubeconfig=%s\n", c.state.server(), c.adminKubeconfig())

	// Each turn looks at how things are and does what is most needed.
	for ctx.Err() == nil {
		switch {
		case !c.etcd.Running():
			c.revive(ctx, c.etcd)
		case !c.apiserver.Running():
			c.revive(ctx, c.apiserver)
		case !c.ready:
			c.say.Line("Waiting for kube-apiserver to be ready")
			if err := c.becomeReady(ctx); err == nil {
				c.say.Line("Ready again")
			}
		default:
			c.sleep(ctx)
		}
	}
	return nil
}

// start starts both children for the first time and waits until they are ready.
func (c *Cluster) start(ctx context.Context) error {
	c.say.Line("Starting etcd at %s, data in %s", c.state.etcdEndpoint(), c.state.EtcdDir)
	if err := c.etcd.Start(); err != nil {
		return err
	}
	if err := c.await(ctx, func(ctx context.Context) error { return etcdHealthy(ctx, c.state.etcdEndpoint()) }); err != nil {
		return c.startError(err)
	}
	c.say.Line("Starting kube-apiserver at %s", c.state.server())
	if err := c.apiserver.Start(); err != nil {
		return err
	}
	if err := c.becomeReady(ctx); err != nil {
		return c.startError(err)
	}
	c.say.Line("Ready, kubeconfig: %s", c.adminKubeconfig())
	return nil
}

// startError adds what the failing child logged last.
func (c *Cluster) startError(err error) error {
	failed := c.apiserver
	if !c.apiserver.Started() || !c.etcd.Running() {
		failed = c.etcd
	}
	return fmt.Errorf("%w\nThe end of %s:\n%s", err, c.dir.file(failed.name+".log"), failed.LogTail(15))
}

// becomeReady waits until kube-apiserver is ready, gives Reader its rights and
// writes the file ready.
func (c *Cluster) becomeReady(ctx context.Context) error {
	client, err := newClient(c.dir, c.state.server())
	if err != nil {
		return err
	}
	err = c.await(ctx, func(ctx context.Context) error {
		if err := apiserverReady(ctx, client); err != nil {
			return err
		}
		return grantReader(ctx, client)
	})
	if err == nil {
		err = writeJSON(c.dir.file(readyFile), newReady(c.dir, c.state, c.etcd.Pid(), c.apiserver.Pid()))
	}
	c.ready = err == nil
	if !errors.Is(err, errDied) { // else Run tries again
		c.answer(err)
	}
	return err
}

// errDied says that a child did, while we waited for it.
var errDied = errors.New("died")

// await polls until ready returns nil. It returns early when a child dies.
func (c *Cluster) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ctx, died := context.WithCancelCause(ctx)
	defer died(nil)
	for _, p := range []*Process{c.etcd, c.apiserver} {
		if !p.Started() {
			continue
		}
		child := *p // as it is now: this goroutine may end a little after await
		go func() {
			select {
			case <-child.Exited():
				died(fmt.Errorf("%s %w: %s", child.name, errDied, child.ExitState()))
			case <-ctx.Done():
			}
		}()
	}
	return poll(ctx, ready)
}

// revive starts a child that died by itself.
func (c *Cluster) revive(ctx context.Context, p *Process) {
	c.unready()
	c.say.Line("%s died (%s), starting it again in %v", p.name, p.ExitState(), c.opts.RestartDelay)
	select {
	case <-ctx.Done():
		return
	case <-time.After(c.opts.RestartDelay):
	}
	if err := p.Start(); err != nil {
		c.say.Line("%v", err)
	}
}

// sleep waits for something to do, and does what the control socket asks for.
func (c *Cluster) sleep(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-c.etcd.Exited():
	case <-c.apiserver.Exited():
	case request := <-c.restartc:
		c.unready()
		c.waiting = append(c.waiting, request)
		if request.kill {
			c.say.Line("Killing kube-apiserver and starting it again, as told")
			c.apiserver.Kill()
		} else {
			c.say.Line("Stopping kube-apiserver and starting it again, as told")
			c.apiserver.Stop(apiserverGrace)
		}
		if err := c.apiserver.Start(); err != nil {
			c.answer(err)
		}
	}
}

// unready takes back that the cluster is ready.
func (c *Cluster) unready() {
	c.ready = false
	c.dir.remove(readyFile)
}

// answer tells those waiting for a restart how it went.
func (c *Cluster) answer(err error) {
	for _, request := range c.waiting {
		request.errc <- err
	}
	c.waiting = nil
}

// restartAPIServer restarts kube-apiserver and returns when it is ready. It may
// be called from any goroutine while Run runs.
func (c *Cluster) restartAPIServer(kill bool) error {
	errc := make(chan error, 1)
	c.restartc <- restartRequest{kill, errc}
	return <-errc
}

// stopChildren stops kube-apiserver, which writes to etcd, before etcd.
func (c *Cluster) stopChildren() {
	c.unready()
	c.etcd.Continue() // kube-apiserver needs it to stop
	if c.apiserver.Running() {
		c.say.Line("Stopping kube-apiserver")
	}
	c.apiserver.Stop(apiserverGrace)
	if c.etcd.Running() {
		c.say.Line("Stopping etcd")
	}
	c.etcd.Stop(etcdGrace)
	c.say.Line("Stopped")
}

// adminKubeconfig is the path we show.
func (c *Cluster) adminKubeconfig() string {
	if c.opts.Kubeconfig != "" {
		return c.opts.Kubeconfig
	}
	return c.dir.file(Admin.kubeconfigFile())
}
