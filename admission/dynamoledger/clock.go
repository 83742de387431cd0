package dynamoledger

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// clock is the service's clock. The Date of a response, which has whole seconds, and the times between which the
// request was under way bound the service's clock from both sides; the bounds of many responses lie close together.
// Inside them this process's own clock counts, and one that is outside is moved to the nearer bound.
type clock struct {
	next  dynamodb.HTTPClient
	local func() time.Time

	mu        sync.Mutex
	least     time.Duration // the service's clock less the local one is at least this
	most      time.Duration // and at most this
	heard     time.Time     // local; zero: never
	corrected time.Duration
}

const (
	// clockStale is how old the last response may be. A machine that slept has a clock that stood still.
	clockStale = time.Minute
	// clockDrift is what two clocks may drift apart: a millisecond a second, far more than real ones do.
	clockDrift = 1000
)

// steady returns a clock that begins at this process's own and is not stepped with it.
func steady() func() time.Time {
	start := time.Now()
	return func() time.Time { return start.Add(time.Since(start)) }
}

// Do implements dynamodb.HTTPClient.
func (c *clock) Do(r *http.Request) (*http.Response, error) {
	sent := c.local()
	resp, err := c.next.Do(r)
	if err == nil {
		if date, bad := http.ParseTime(resp.Header.Get("Date")); bad == nil {
			c.learn(sent, c.local(), date)
		}
	}
	return resp, err
}

// learn takes the Date of a response to a request that was under way from sent to received.
func (c *clock) learn(sent, received, date time.Time) {
	least, most := date.Sub(received), date.Add(time.Second).Sub(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.heard.IsZero() {
		drift := received.Sub(c.heard) / clockDrift
		l, m := max(least, c.least-drift), min(most, c.most+drift)
		if l <= m { // otherwise one of the clocks was stepped
			least, most = l, m
		}
	}
	c.least, c.most, c.heard = least, most, received
	c.corrected = max(least, min(most, 0))
}

// now is the service's clock; ok is false if no response has told it for a while.
func (c *clock) now() (now time.Time, correction time.Duration, ok bool) {
	t := c.local()
	c.mu.Lock()
	defer c.mu.Unlock()
	ok = !c.heard.IsZero() && t.Sub(c.heard) < clockStale
	return t.Add(c.corrected).UTC().Truncate(time.Millisecond), c.corrected, ok
}

// Now implements admission.Store: the clock of DynamoDB, as the responses tell it, to about a second. It makes a
// request only if there was none for a minute.
func (s *store) Now(ctx context.Context) (time.Time, error) {
	now, _, ok := s.clock.now()
	if ok {
		return now, nil
	}
	err := s.persist(ctx, call{op: "now"}, func(ctx context.Context) error {
		_, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: s.table, Key: actionKey("now")})
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	now, correction, _ := s.clock.now()
	if correction.Abs() > clockOff {
		s.cfg.Logger.Warn("this machine's clock is wrong; the ledger goes by that of DynamoDB", "off_by", -correction)
	}
	return now, nil
}

// clockOff is from where on a wrong clock is worth a line in the log.
const clockOff = 5 * time.Second
