package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/dynamoledger"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// envGateway makes a gateway process of this test program.
const envGateway = "TILEFENCE_TEST_GATEWAY"

func TestMain(m *testing.M) {
	if text := os.Getenv(envGateway); text != "" {
		var d doomed
		err := json.Unmarshal([]byte(text), &d)
		if err == nil {
			err = d.run(context.Background())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// doomed is a gateway process, which is killed. It plays until then, and sweeps; without an Actor it only sweeps.
type doomed struct {
	Redis              []string
	Postgres, Table    string
	DynamoDB, Ledger   string
	SQLite             string // the ledger, instead of Ledger
	Tile               fence.TileID
	Actor              string
	Actions            int
	RetryWindow, Sweep time.Duration
}

func (d *doomed) ledger(ctx context.Context) (*admission.AdmissionLedger, func(), error) {
	var store admission.Store
	var done func()
	if d.SQLite != "" {
		s, err := sqliteledger.Open(ctx, d.SQLite)
		if err != nil {
			return nil, nil, err
		}
		store, done = s, func() { _ = s.Close() }
	} else {
		transport := &http.Transport{}
		client := dynamodb.New(dynamodb.Options{Region: "local", BaseEndpoint: aws.String(d.DynamoDB),
			Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
			HTTPClient:  &http.Client{Transport: transport}})
		done = transport.CloseIdleConnections
		if err := dynamoledger.CreateTable(ctx, client, d.Ledger); err != nil {
			return nil, nil, err
		}
		var err error
		if store, err = dynamoledger.New(client, d.Ledger, nil); err != nil {
			return nil, nil, err
		}
	}
	l, err := admission.New(store, nil)
	return l, done, err
}

// seams are the authority, the store and the log of the tile.
func (d *doomed) seams(ctx context.Context) (tile.Seams, func(), error) {
	client, err := redisfence.Connect(ctx, redisfence.Options(d.Redis...))
	if err != nil {
		return tile.Seams{}, nil, err
	}
	pool, err := pgxpool.New(ctx, d.Postgres)
	if err != nil {
		return tile.Seams{}, nil, err
	}
	done := func() {
		pool.Close()
		_ = client.Close()
	}
	authority, err := pgfence.New(pool, &pgfence.Config{Table: d.Table})
	if err != nil {
		return tile.Seams{}, nil, err
	}
	store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
	if err != nil {
		return tile.Seams{}, nil, err
	}
	return tile.Seams{Authority: authority, Store: store, Log: redisstream.New(store, client)}, done, nil
}

// forgetful loses a third of the intents on their way, and a third of the answers.
type forgetful struct{ tiles *tilehttp.Client }

func (f forgetful) Forward(ctx context.Context, contact string, in tile.Intent) (tile.Result, error) {
	fate := rand.IntN(3)
	if fate == 0 {
		return tile.Result{}, errReset
	}
	outcome, err := f.tiles.Forward(ctx, contact, in)
	if fate == 1 {
		return tile.Result{}, errReset
	}
	return outcome, err
}

func (d *doomed) run(ctx context.Context) error {
	ledger, _, err := d.ledger(ctx)
	if err != nil {
		return err
	}
	seams, _, err := d.seams(ctx)
	if err != nil {
		return err
	}
	router, err := route.NewRouter(new(route.Table), seams.Store, nil)
	if err != nil {
		return err
	}
	client, err := tilehttp.NewClient(nil)
	if err != nil {
		return err
	}
	reconciler, err := admission.NewReconciler(seams.Authority, seams.Store, seams.Log, &admission.ReconcilerConfig{
		RetryWindow: d.RetryWindow, RememberFor: d.remember(), MaxClockSkew: 2 * time.Second})
	if err != nil {
		return err
	}
	gate, err := admission.NewGateway(ledger, router, forgetful{client}, admission.ClientPrices,
		&admission.GatewayConfig{
			Unlimited: true, Reconciler: reconciler, RetryWindow: d.RetryWindow,
			SweepInterval: d.Sweep, SweepAge: d.Sweep})
	if err != nil {
		return err
	}
	if d.Actor != "" {
		go func() {
			for i := range d.Actions {
				id := fmt.Sprint(d.Actor, "/", i)
				_, _ = gate.Act(ctx, admission.Action{ID: id, Actor: d.Actor, Asset: "card", Cost: 2, Tile: d.Tile,
					Body: []byte(id)}) // what fails is left to the sweeps
			}
		}()
	}
	return gate.Run(ctx)
}

// remember is the tile's memory: long, so that a busy machine does not make the evidence too late.
func (d *doomed) remember() time.Duration { return d.RetryWindow + 5*time.Minute }

func (d *doomed) start(t *testing.T) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(d)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envGateway+"="+string(text))
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { kill(cmd) })
	return cmd
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // says that it was killed
}

// TestReconcilersAreKilled: gateways whose messages get lost are killed while they play, and others while they sweep.
// In the end every action has an outcome, which is what the tile did, and what never happened was given back.
func TestReconcilersAreKilled(t *testing.T) {
	for name, d := range map[string]doomed{
		"sqlite":   {SQLite: filepath.Join(t.TempDir(), "ledger.db")},
		"dynamodb": {Ledger: stacktest.UniqueName(t), DynamoDB: stacktest.DynamoDB(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d.Redis, d.Postgres, d.Table = stacktest.Redis(t), stacktest.PostgresDB(t), stacktest.UniqueName(t)
			d.Tile = fence.TileID(rand.Uint64()>>1 | 1)
			d.RetryWindow, d.Sweep = time.Second, 200*time.Millisecond
			d.reconcile(t)
		})
	}
}

func (d *doomed) reconcile(t *testing.T) {
	seams, closeSeams, err := d.seams(t.Context())
	require.NoError(t, err)
	defer closeSeams()
	require.NoError(t, seams.Authority.(*pgfence.Authority).Migrate(t.Context()))
	require.NoError(t, seams.Store.(*redisfence.Store).Load(t.Context()))
	ledger, closeLedger, err := d.ledger(t.Context())
	require.NoError(t, err)
	defer closeLedger()
	cast, stop := d.serve(t, seams)
	const actors, actions = 4, 30
	d.Actions = actions
	for a := range actors {
		require.NoError(t, ledger.Credit(t.Context(), fmt.Sprint("p", a), "card", 2*actions, fmt.Sprint("deck", a)))
	}
	for round := range 4 { // each goes on with the actions of the one before
		var playing []*exec.Cmd
		for a := range actors {
			p := *d
			p.Actor = fmt.Sprint("p", a)
			playing = append(playing, p.start(t))
		}
		waittest.Until(t, func() bool { // some are admitted in this round
			return len(d.all(t, ledger)) >= actors*(round+1)
		}, time.Minute, 20*time.Millisecond)
		time.Sleep(rand.N(500 * time.Millisecond))
		for _, p := range playing {
			kill(p)
		}
	}
	p := *d
	for range 4 {
		sweeping := []*exec.Cmd{p.start(t), p.start(t), p.start(t)}
		time.Sleep(time.Second + rand.N(time.Second))
		for _, s := range sweeping {
			kill(s)
		}
		sound(t, ledger)
	}
	p.start(t)
	p.start(t)
	waittest.Until(t, func() bool { return len(sound(t, ledger)) == 0 }, 2*time.Minute, 200*time.Millisecond,
		"every action has an outcome")
	stop()
	counts := map[string]int{}
	for _, a := range d.all(t, ledger) {
		counts[a.Outcome.String()]++
		want := 0
		if a.Outcome == stream.Applied {
			want = 1
		}
		assert.Equal(t, want, cast()[a.ActionID], "%s: %s", a.ActionID, a.Outcome)
		assert.Equal(t, want == 0, a.Refunded, "%s: %s", a.ActionID, a.Outcome)
	}
	t.Log(counts)
	assert.Positive(t, counts["applied"])
}

// all are the actions in the ledger.
func (d *doomed) all(t *testing.T, ledger *admission.AdmissionLedger) (all []admission.Artifact) {
	t.Helper()
	for a := range 4 {
		for i := range d.Actions {
			art, err := ledger.Lookup(t.Context(), fmt.Sprint("p", a, "/", i))
			if err == nil {
				all = append(all, art)
			}
		}
	}
	return all
}

// serve runs the tile in this process. cast is how often each spell was cast, once stop has returned.
func (d *doomed) serve(t *testing.T, seams tile.Seams) (cast func() map[string]int, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	rules := &spells{}
	var processor *tile.TileProcessor
	submit := func(ctx context.Context, in tile.Intent) (tile.Result, error) { return processor.Submit(ctx, in) }
	handler, err := tilehttp.NewHandler(tilehttp.SubmitterFunc(submit), nil)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	contact := l.Addr().String()
	processor, err = tile.New(d.Tile, contact, seams, rules, &tile.Config{TickInterval: 50 * time.Millisecond,
		Limits: tile.Limits{RetryWindow: d.RetryWindow, RememberFor: d.remember()}})

	require.NoError(t, err)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(l) }()
	ended := make(chan error, 1)
	go func() { ended <- processor.Run(ctx) }()
	waittest.Until(t, func() bool { return processor.Status().State == tile.Serving }, time.Minute,
		10*time.Millisecond)
	return func() map[string]int { return rules.Cast }, func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, server.Close())
	}
}
