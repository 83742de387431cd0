package tilehttp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/internal/keyring"
)

// Keys authenticate gateways and tile servers to each other. Every process of a deployment has the same ones, of at
// least 16 random bytes each. The first is presented, all are accepted. So a key is replaced without downtime: add the
// new one at the end everywhere, then put it first everywhere, then leave the old one out.
//
// With keys a connection begins with a challenge of each end to the other, which is answered by an HMAC over both
// challenges and the contact that was called: a process without a key can neither send intents nor answer them, nor
// pass a gateway on to a tile server of another address. What follows on the connection is not signed, and nothing is
// encrypted: where others can write into the network between your processes, use TLS (Config.TLS) too.
//
// Without keys every process that reaches the port is believed.
type Keys [][]byte

// Validate returns a *fence.ArgumentError for a key that is too short. Without keys it is nil.
func (k Keys) Validate() error { return keyring.Validate("Keys", k) }

// Headers of the challenges and proofs.
const (
	headContact   = "Tilefence-Contact"
	headChallenge = "Tilefence-Challenge"
	headProof     = "Tilefence-Proof"
)

// Roles keep what one end proves from being used as the proof of the other.
const (
	roleServer   = "tile server"
	roleGateway  = "gateway"
	roleGiver    = "giver"
	roleReceiver = "receiver"
	// rolePresenter is that of a server which presents what has departed for a tile.
	rolePresenter = "presenter"
)

// prove signs parts in a role with the key that is presented.
func (k Keys) prove(role string, parts ...string) string {
	return hex.EncodeToString(keyring.Sign(k[0], signedParts(role, parts)...))
}

// proven reports whether proof is that of any key.
func (k Keys) proven(proof, role string, parts ...string) bool {
	got, err := hex.DecodeString(proof)
	return err == nil && keyring.Signed(k, got, signedParts(role, parts)...)
}

func signedParts(role string, parts []string) []string {
	return append([]string{"tilefence peer 1", role}, parts...)
}

// challenge is random.
func challenge() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// wireProof is the first message of a gateway on a connection with keys.
type wireProof struct {
	Version int    `json:"v"`
	Proof   string `json:"proof"`
}

// errUnproven: the other end does not know a key of this deployment.
var errUnproven = errors.New("the peer does not prove that it knows a key of this deployment (tilehttp.Keys)")

// offer is the header of a gateway's handshake with contact.
func (k Keys) offer(contact string) http.Header {
	h := http.Header{}
	if len(k) > 0 {
		h.Set(headContact, contact)
		h.Set(headChallenge, challenge())
	}
	return h
}

// meet checks the tile server's answer to a handshake, and proves the gateway to it.
func (k Keys) meet(ctx context.Context, conn *websocket.Conn, offered, answer http.Header) error {
	if len(k) == 0 {
		return nil
	}
	contact, ours, theirs := offered.Get(headContact), offered.Get(headChallenge), answer.Get(headChallenge)
	if theirs == "" || !k.proven(answer.Get(headProof), roleServer, contact, ours, theirs) {
		return errUnproven
	}
	return conn.Write(ctx, websocket.MessageText,
		mustEncode(wireProof{Version: version, Proof: k.prove(roleGateway, contact, ours, theirs)}))
}

// answer puts a tile server's challenge and proof into the header of its answer to a handshake, and returns the
// challenge. Its error is for the gateway to read.
func (k Keys) answer(own string, asked, h http.Header) (theirs string, err error) {
	contact, ours := asked.Get(headContact), asked.Get(headChallenge)
	switch {
	case ours == "" || len(ours) > 64:
		return "", errors.New("present a key of this deployment: tilehttp.Keys")
	case own != "" && contact != own:
		return "", errors.New("this tile server is " + own + ", and was called by another contact")
	}
	theirs = challenge()
	h.Set(headChallenge, theirs)
	h.Set(headProof, k.prove(roleServer, contact, ours, theirs))
	return theirs, nil
}

// admit reads a gateway's proof, which must be its first message.
func (k Keys) admit(ctx context.Context, conn *websocket.Conn, asked http.Header, theirs string) error {
	_, b, err := conn.Read(ctx)
	if err != nil {
		return err
	}
	var m wireProof
	if err := json.Unmarshal(b, &m); err != nil ||
		!k.proven(m.Proof, roleGateway, asked.Get(headContact), asked.Get(headChallenge), theirs) {
		return errUnproven
	}
	return nil
}

// proofAge is how far the clocks of two tile servers may be apart, and for how long a process that has seen a hand-over
// can send it again: it names an epoch, so that this moves no tile twice, and a presentation that comes again is known.
const proofAge = 5 * time.Minute

// signRequest proves a request to the server at contact.
func (k Keys) signRequest(role string, h http.Header, contact string, body []byte) {
	if len(k) > 0 {
		at := strconv.FormatInt(time.Now().UnixMilli(), 10)
		h.Set(headContact, contact)
		h.Set(headProof, at+" "+k.prove(role, contact, at, string(body)))
	}
}

// checkRequest judges a request to the server of contact own; empty means that it does not know its own.
func (k Keys) checkRequest(role string, h http.Header, own string, body []byte) error {
	if len(k) == 0 {
		return nil
	}
	at, proof, _ := strings.Cut(h.Get(headProof), " ")
	contact := h.Get(headContact)
	if own != "" && contact != own || !k.proven(proof, role, contact, at, string(body)) {
		return errUnproven
	}
	ms, err := strconv.ParseInt(at, 10, 64)
	if age := time.Since(time.UnixMilli(ms)); err != nil || age.Abs() > proofAge {
		return fmt.Errorf("the proof of a %s is %v old: are the clocks set?", role, age.Round(time.Second))
	}
	return nil
}

// signAccepted proves an answer to the request whose header is asked.
func (k Keys) signAccepted(asked, h http.Header, body []byte) {
	if len(k) > 0 {
		h.Set(headProof, k.prove(roleReceiver, asked.Get(headProof), string(body)))
	}
}

// checkAccepted judges an answer.
func (k Keys) checkAccepted(asked, h http.Header, body []byte) error {
	if len(k) > 0 && !k.proven(h.Get(headProof), roleReceiver, asked.Get(headProof), string(body)) {
		return errUnproven
	}
	return nil
}
