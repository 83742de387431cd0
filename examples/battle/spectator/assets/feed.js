// The relay's client: one WebSocket, one position a tile, and the one comparison that keeps a view honest.
// A frame is applied only if its prev is exactly the position held; otherwise it is ignored and one Resync
// asks for what is missing. Nothing of a lower epoch than the page has shown is applied: the relay that offers it is
// cut off, and is asked again or left for another one. See relay/relaypb/view.proto.

import * as wire from "./wire.js";

const subprotocol = "tilefence.view.v1.json";
const never = -Infinity;
const resyncTimeout = 5000; // ms until an unanswered Resync is sent again
const fruitlessPause = 1000; // ms until a Resync whose answer did not help is sent again
const backoff = { min: 250, max: 15000 }; // ms between attempts to connect, and between questions to a relay behind us
const staleAsks = 3; // questions to a relay that is behind until another connection is tried

/**
 * Feed talks through a line, which has connect(url, protocol) and send(text), and tells the feed with
 * opened(), message(text, at) and closed(reason). It calls
 *
 *   restore(tile, blob)              start over from a snapshot; may throw
 *   apply(tile, frame, arrived)      fold a batch; may throw. arrived is ms since 1970, 0 within a Sync
 *   moved(tile, position, before)    after each of the two
 *   owner(tile, epoch, contact)      who owns it, as far as the relay knows
 *   link(state, text)                about the connection
 *   trouble(text, code)              what the relay could not do
 */
export class Feed {
  constructor(line, url, tiles, calls) {
    this.line = line;
    this.url = url;
    this.calls = calls;
    this.tiles = new Map(tiles.map((id) => [id, { id, at: wire.beginning, floor: 0, synced: false, broken: false, asked: never, stale: 0 }]));
    this.counts = { frames: 0, bytes: 0, syncs: 0, gaps: 0, repairs: 0, resyncs: 0, duplicates: 0, connects: 0, stale: 0 };
    this.failures = 0;
    this.open = false;
  }

  connect() {
    this.calls.link("wait", "connecting");
    this.line.connect(this.url, subprotocol);
  }

  opened() {
    this.open = true;
    this.failures = 0;
    this.counts.connects++;
    this.calls.link("live", "live");
    const all = [...this.tiles.values()];
    this.#send({
      subscribe: {
        tiles: all.filter((t) => !t.synced).map((t) => t.id),
        held: all.filter((t) => t.synced).map((t) => ({ tile: t.id, ...wire.held(t) })),
      },
    });
  }

  /** Connects again after a while: longer after each failure, and never at the same moment as others. */
  closed(reason) {
    this.open = false;
    const cap = Math.min(backoff.max, backoff.min * 2 ** this.failures++);
    for (const t of this.tiles.values()) t.asked = never;
    this.calls.link("lost", reason ? `${reason}: reconnecting` : "reconnecting");
    setTimeout(() => this.connect(), cap / 2 + Math.random() * (cap / 2));
  }

  #send(message) { this.line.send(JSON.stringify(message)); }

  message(text, at) {
    let m;
    try {
      m = JSON.parse(text);
    } catch {
      return this.calls.trouble("The relay sent something that is not JSON.");
    }
    const tile = this.tiles.get(m.tile);
    try {
      if (m.frame && tile?.synced) this.#frame(tile, wire.frame(m.frame), at);
      else if (m.sync && tile) this.#sync(tile, wire.sync(m.sync));
      else if (m.error?.code === "CODE_STALE" && tile) this.#behind(tile);
      else if (m.error) this.calls.trouble(`Relay: ${m.error.message ?? m.error.code}`, m.error.code);
      else if (m.goAway) this.calls.link("wait", "relay is leaving");
    } catch (err) {
      if (!(err instanceof wire.WireError) || !tile) throw err;
      this.#gap(tile, wire.beginning); // what the page holds of the tile is not to be trusted any more
    }
  }

  #frame(tile, f, at) {
    this.counts.bytes += f.payload.length;
    if (f.position.epoch < tile.floor) this.counts.stale++;
    else if (f.prev.key === tile.at.key && !f.rebase) {
      this.#apply(tile, f, at);
      this.#mend(tile);
    } else if (f.position.key === tile.at.key || (f.position.epoch <= tile.at.epoch && f.position.seq <= tile.at.seq)) {
      this.counts.duplicates++;
    } else {
      this.#gap(tile, tile.at);
    }
  }

  #apply(tile, f, arrived) {
    this.calls.apply(tile.id, f, arrived);
    this.counts.frames++;
    this.#moveTo(tile, f.position);
  }

  #sync(tile, s) {
    this.counts.syncs++;
    if (s.position.epoch < tile.floor) {
      this.counts.stale++;
      return this.#behind(tile);
    }
    if (s.replace) {
      this.calls.restore(tile.id, s.blob);
      tile.synced = true;
      this.#moveTo(tile, s.from);
    }
    for (const f of s.tail) if (f.prev.key === tile.at.key) this.#apply(tile, f, 0);
    if (s.ownerEpoch > 0) this.calls.owner(tile.id, s.ownerEpoch, s.ownerContact);
    if (tile.at.key === s.position.key) return this.#mend(tile);
    tile.asked = performance.now() - resyncTimeout + fruitlessPause;
    this.#gap(tile, wire.beginning);
  }

  #moveTo(tile, position) {
    const before = tile.at;
    tile.at = position;
    tile.floor = Math.max(tile.floor, position.epoch);
    this.calls.moved(tile.id, position, before);
  }

  #gap(tile, have) {
    if (!tile.broken) this.counts.gaps++;
    tile.broken = true;
    if (performance.now() - tile.asked < resyncTimeout) return;
    tile.asked = performance.now();
    tile.have = have;
    this.counts.resyncs++;
    this.#send({ resync: { tile: tile.id, ...wire.held({ at: have, floor: tile.floor }) } });
  }

  #mend(tile) {
    if (tile.broken) this.counts.repairs++;
    tile.broken = false;
    tile.asked = never;
    tile.stale = 0;
  }

  /** The relay is behind the page: keep what is shown, and ask again after a pause that doubles each time. */
  #behind(tile) {
    if (tile.waiting) return;
    const cap = Math.min(backoff.max, backoff.min * 2 ** tile.stale++);
    tile.waiting = setTimeout(() => this.#askAgain(tile), cap / 2 + Math.random() * (cap / 2));
    this.calls.trouble(`The relay is behind this page (epoch ${tile.floor}): asking again.`, "CODE_STALE");
  }

  #askAgain(tile) {
    tile.waiting = undefined;
    if (!this.open || tile.stale === 0) return;
    if (tile.stale % staleAsks === 0) {
      this.open = false;
      return this.connect(); // perhaps to another relay
    }
    this.counts.resyncs++;
    this.#send({ resync: { tile: tile.id, ...wire.held(tile) } });
  }

  /** Asks again where an answer is overdue. To be called about once a second. */
  remind() {
    if (!this.open) return;
    for (const t of this.tiles.values()) if (t.broken) this.#gap(t, t.have ?? wire.beginning);
  }
}
