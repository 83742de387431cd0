//go:build browser && unix

package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/benchmark/measure"
	"github.com/tilefence/tilefence/internal/chromium"
)

// This test needs a browser, so it runs only when asked for:
//
//	go test -tags browser -run TestSecurePage ./examples/battle

// TestSecurePage opens the page of a battle with -secure in a browser that trusts the battle's certificate and no other
// of its kind: the page's state is that of the owners, and a visitor gets a seat, all over https and wss. A browser
// that does not trust the certificate shows nothing.
func TestSecurePage(t *testing.T) {
	d := deploy(t, "-secure", "-tiles", "2", "-hosts", "2", "-tick", "100ms", "-clients", "14", "-lobby", "6",
		"-pilots", "0")
	ctx, over := context.WithCancel(t.Context())
	played := make(chan *measure.Report, 1)
	go func() {
		r, err := d.play(ctx)
		assert.NoError(t, err)
		played <- r
	}()
	address := "https://" + d.page.Addr().String() + "/"
	leaf, err := x509.ParseCertificate(d.secure.Certificates().Server().Certificates[0].Certificate[0])
	require.NoError(t, err)
	key := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)

	b := chromium.Open(t, address, "--ignore-certificate-errors-spki-list="+base64.StdEncoding.EncodeToString(key[:]))
	b.Until(`location.protocol === "https:" && isSecureContext`)
	b.Until(`document.querySelectorAll(".proof[data-state=same]").length === 2`)
	const positions = `[...document.querySelectorAll("#tiles .position")].map((p) => p.textContent)`
	b.Eval(`window.before = `+positions, nil)
	b.Until(positions + `.every((p, i) => p !== window.before[i])`)

	const press = `document.getElementById("ticket-button").click()`
	says := func(button, state string) string {
		return `document.getElementById("ticket-button").textContent === "` + button +
			`" && document.getElementById("ticket-state").textContent.startsWith("` + state + `")`
	}
	b.Eval(press, nil)
	b.Until(says("Leave", "seat "))
	b.Eval(press, nil)
	b.Until(says("Find a match", "left seat "))
	requests, errors := b.Noted()
	assert.Empty(t, errors)
	for _, r := range requests { // the worker's to the relay is not among them: a page of https may open no other
		assert.Regexp(t, "^(https|wss):", r)
	}
	assert.Contains(t, requests, d.intents, "the gateway")

	stranger := chromium.Open(t, address)
	stranger.Until(`location.protocol === "chrome-error:"`)
	over()
	r := <-played
	require.NotNil(t, r)
	assert.True(t, r.Converged, r.Why)
	assert.Empty(t, r.Lobby.Why)
}

// TestPilotsOnThePage: the page says how many ships wait for a plan, which ones and for how long, and counts the plans
// that the tiles took.
func TestPilotsOnThePage(t *testing.T) {
	d := deploy(t, "-tiles", "2", "-hosts", "2", "-tick", "100ms", "-clients", "14", "-pilots", "5")
	ctx, over := context.WithCancel(t.Context())
	played := make(chan *measure.Report, 1)
	go func() {
		r, err := d.play(ctx)
		assert.NoError(t, err)
		played <- r
	}()
	b := chromium.Open(t, "http://"+d.page.Addr().String()+"/")
	b.Until(`!document.getElementById("pilots").hidden`)
	b.Until(`+document.getElementById("pilots-running").textContent > 0`)
	b.Until(`document.querySelectorAll("#pilots-list li.running b").length > 0`)
	b.Until(`+document.getElementById("pilots-applied").textContent > 0`)
	b.Until(`+document.getElementById("n-crossings").textContent > 0`) // the ships of other bots sail to the other tile
	_, errors := b.Noted()
	assert.Empty(t, errors)
	over()
	r := <-played
	require.NotNil(t, r)
	assert.True(t, r.Converged, r.Why)
}

// countShips counts how often each ship is drawn in each picture: window.wrong is of the pictures that had a ship
// twice, or not at all between two that had it.
const countShips = `import("/assets/sprites.js").then(({ Sprites }) => {
	const draw = Sprites.prototype.draw, pictures = new Map();
	window.wrong = [];
	window.drawn = 0;
	Sprites.prototype.draw = function (ctx, camera, now, shown, all) {
		if (!pictures.has(now)) pictures.set(now, new Map());
		for (const { ship } of all ?? this.all.values()) {
			if (shown(ship)) pictures.get(now).set(ship.name, (pictures.get(now).get(ship.name) ?? 0) + 1);
		}
		const times = [...pictures.keys()];
		if (times.length > 4) { // the last one is not complete
			const [before, it, after] = times.map((t) => pictures.get(t));
			for (const [name, n] of it) if (n !== 1) window.wrong.push(name + " " + n + " times");
			for (const name of before.keys()) {
				if (after.has(name) && !it.has(name)) window.wrong.push(name + " not at all");
			}
			window.drawn++;
			pictures.delete(times[0]);
		}
		return draw.call(this, ctx, camera, now, shown, all);
	};
})`

// TestShipsCrossOnThePage: ships sail and warp between two tiles, and in every picture each is drawn once.
func TestShipsCrossOnThePage(t *testing.T) {
	d := deploy(t, "-tiles", "2", "-hosts", "2", "-tick", "100ms", "-clients", "60", "-pilots", "0", "-lobby", "0")
	ctx, over := context.WithCancel(t.Context())
	played := make(chan *measure.Report, 1)
	go func() {
		r, err := d.play(ctx)
		assert.NoError(t, err)
		played <- r
	}()
	b := chromium.Open(t, "http://"+d.page.Addr().String()+"/")
	b.Eval(countShips, nil)
	b.Until(`+document.getElementById("n-crossings").textContent >= 20 && window.drawn > 100`)
	var wrong []string
	b.Eval(`window.wrong`, &wrong)
	assert.Empty(t, wrong)
	_, errors := b.Noted()
	assert.Empty(t, errors)
	over()
	r := <-played
	require.NotNil(t, r)
	assert.True(t, r.Converged, r.Why)
	assert.NoError(t, r.Census.Err())
}
