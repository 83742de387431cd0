package relay

import (
	"errors"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/stream"
)

// sharedFull takes snapshot and tail from Config.Views, and reads the store itself if they are of no help.
func (r *repairer) sharedFull(h *hub) (RepairInfo, error) {
	h.mu.Lock()
	need, disputed := h.reach(), h.disputed
	h.mu.Unlock()
	if disputed { // since the attempt began
		return r.cold(r.readFull)(h)
	}
	v, err := r.cfg.Views.View(r.life.base, h.tile, need)
	switch {
	case errors.Is(err, viewcache.ErrNotShared):
		return r.cold(r.readFull)(h)
	case err != nil:
		return RepairInfo{}, err
	}
	if h.unproven(v.Position.Epoch) {
		return r.cold(r.readFull)(h)
	}
	r.count.shared.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shared = true
	info, err := h.adopt(&v.Recovery, v.Owner)
	info.Shared = true
	if v.Stale {
		h.want |= wantTail // another relay reads it
	}
	return info, err
}

// sharedTail takes what follows the present position from Config.Views. If they begin after it, the stream may still
// have what the clients lack.
func (r *repairer) sharedTail(h *hub) (RepairInfo, error) {
	h.mu.Lock()
	at, need := h.view.at, h.reach()
	h.mu.Unlock()
	v, err := r.cfg.Views.Tail(r.life.base, h.tile, at, need)
	switch {
	case errors.Is(err, viewcache.ErrNotShared), errors.Is(err, stream.ErrGap), errors.Is(err, fence.ErrCorrupt):
		return r.cold(r.readTail)(h)
	case err != nil:
		return RepairInfo{}, err
	}
	if h.unproven(v.Position.Epoch) {
		return r.cold(r.readTail)(h)
	}
	r.count.shared.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.view.setOwner(v.Owner)
	h.want &^= wantTail // as after a read of the store
	return RepairInfo{Shared: true, Batches: h.take(&v.Recovery)}, nil
}

// unproven reports whether a loaded view would get a higher epoch than the store has vouched for. A first view is taken
// as it is: the next comparison with the store confirms or disputes it.
func (h *hub) unproven(e fence.Epoch) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.view.loaded && e > h.view.known()
}
