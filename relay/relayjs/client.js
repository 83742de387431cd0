// A client of Tilefence relays: one WebSocket, one position a tile, and the one comparison that keeps a view honest.
//
//   import { Client, events } from "./client.js";
//
//   const client = new Client("wss://relay.example/view", ["85283083fffffff"], {
//     restore: (tile, blob) => world.restore(tile, blob),
//     apply: (tile, frame) => { for (const [, event] of events(frame.payload)) world.apply(tile, event); },
//   });
//   client.connect();
//
// A frame is applied only if its prev is exactly the position held; otherwise it is ignored and one Resync asks for
// what is missing. Nothing of a lower epoch than was held is applied: the relay that offers it is asked again after a
// while, then left for another connection. After a reconnect the relay sends only what was missed. docs/wire.md has
// the rules.
//
// A relay that has nothing to send says so (Heartbeat). After two and a half of the intervals that it names, 25 s by
// default, the client reports "lost" and connects again: the network may lose a connection without a word.

import * as wire from "./messages.js";

export { Reader, WireError, parts } from "./messages.js";

/** The WebSocket subprotocol: the relay's messages as JSON. */
export const subprotocol = "tilefence.view.v1.json";

const tokenProtocol = "tilefence.token."; // begins the offered subprotocol that carries a token
const never = -Infinity;
const remindEvery = 1000; // ms
const resyncTimeout = 5000; // ms until an unanswered Resync is sent again
const fruitlessPause = 1000; // ms until a Resync whose answer did not help is sent again
const backoff = { min: 250, max: 15000 }; // ms between attempts to connect, and between questions to a relay behind us
const forgetAfter = 30000; // ms for which relays must say that the store does not know our floor before it is forgotten
const openTimeout = 20000; // ms for a token, and as many for a handshake
const firstTimeout = 30000; // ms until the first message of a connection
const longestLimit = 600000; // ms of silence, whatever a relay says and however slow the line is
const refused = 1008; // the status with which the game turns a player away
const longestTimer = 2 ** 31 - 1; // ms; a longer timer fires at once
const staleAsks = 3; // questions to a relay that is behind until another connection is tried

const nothing = () => {};
const silent = {
  restore: nothing, open: nothing, apply: nothing, moved: nothing, owner: nothing, link: nothing, trouble: nothing,
};

/**
 * The events, as [area, bytes], of a frame's payload: of all areas, or of those given. A game without areas has all its
 * events in area 0. Throws a WireError.
 */
export function events(payload, areas) {
  const all = [];
  for (const [area, part] of wire.parts(payload, "batch")) {
    while (part.left) {
      const event = part.take(part.varint());
      if (!areas || areas.includes(area)) all.push([area, event]);
    }
  }
  return all;
}

/** A line to the relay over this thread's own WebSocket. */
class SocketLine {
  constructor(client) { this.client = client; }

  connect(url, protocols) {
    this.close();
    const s = this.socket = new WebSocket(url, protocols);
    s.onopen = () => this.client.opened();
    s.onmessage = ({ data }) => { if (typeof data === "string") this.client.message(data, Date.now()); };
    s.onclose = ({ reason, code }) => this.client.closed(reason, code);
  }

  send(text) { if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(text); }

  close() {
    if (!this.socket) return;
    this.socket.onopen = this.socket.onmessage = this.socket.onclose = null;
    this.socket.close();
    this.socket = null;
  }
}

/**
 * Client watches tiles of a relay. It calls, all of them optional:
 *
 *   restore(tile, blob, areas)       start over from a snapshot, with some areas. The blob is what the game's Snapshot
 *                                    returned, of a divided tile a list of parts; empty for a new tile
 *   open(tile, blob, areas)          add areas from a snapshot
 *   apply(tile, frame, arrived, areas) fold a batch, of some areas or of all that are held (areas is undefined);
 *                                    arrived is ms since 1970, 0 within a Sync. See events
 *   moved(tile, position, before)    after each of the two
 *   owner(tile, epoch, contact)      who owns it, as far as the relay knows
 *   link(state, text)                about the connection: "wait", "live", "lost", or "ended": the player is refused
 *   trouble(text, code)              what the relay could not do
 *   token()                          the player's token, or a promise of it, for each connection and before the session
 *                                    expires. It is of the characters of base64url and dots
 *
 * restore, open and apply may throw a WireError, as for bytes they cannot read: the tile is then asked for anew.
 */
export class Client {
  /**
   * tiles are those to begin with, as for join. A line has connect(url, protocols), send(text) and close(), and calls opened(),
   * message(text, at) and closed(reason, code) of the client: another thread's socket, or a test's. Default: a WebSocket.
   */
  constructor(url, tiles, calls, line) {
    this.line = line ?? new SocketLine(this);
    this.url = url;
    this.calls = { ...silent, ...calls };
    this.tiles = new Map();
    this.open = false;
    for (const t of tiles) this.join(t);
    this.watches = 0; // of this connection
    this.counts = { frames: 0, bytes: 0, syncs: 0, gaps: 0, repairs: 0, resyncs: 0, duplicates: 0, connects: 0, stale: 0 };
    this.failures = 0;
    this.limit = 0; // ms of silence that an open connection may have; 0: the relay has not said
    this.patience = 1; // by which the limit is multiplied: a long message over a slow line shows when all of it is here
    this.attempt = 0; // to connect, counted
    this.ended = false;
  }

  /** Connects, and again whenever the connection is lost, until close. */
  connect() {
    if (this.ended) return;
    this.reminder ??= setInterval(() => this.remind(), remindEvery);
    clearTimeout(this.retry);
    this.retry = undefined;
    const attempt = ++this.attempt;
    this.calls.link("wait", "connecting");
    this.#expect(openTimeout);
    if (!this.calls.token) return this.line.connect(this.url, subprotocol);
    this.#withToken((token) => {
      if (attempt !== this.attempt || this.retry !== undefined) return; // it came too late
      this.#expect(openTimeout);
      this.line.connect(this.url, [subprotocol, tokenProtocol + token]);
    }, () => { if (attempt === this.attempt) this.closed("no token"); });
  }

  /** Something has to happen within so many ms; 0: it may take for ever. */
  #expect(within) {
    this.within = within;
    this.heard = performance.now();
    this.heardAt = Date.now(); // which goes on while the machine sleeps
    this.doubted = false;
  }

  /** Gives up what has taken too long. A page that was asleep finds messages and this timer at once: it looks twice. */
  #watchdog() {
    const silent = Math.max(performance.now() - this.heard, Date.now() - this.heardAt);
    if (this.retry !== undefined || !this.within || silent <= this.within) return (this.doubted = false);
    if (!this.doubted) return (this.doubted = true);
    if (this.open && this.limit) this.patience *= 2; // until a Sync or a Frame comes
    this.line.close?.();
    this.closed(`${this.open ? "nothing heard" : "no connection"} for ${Math.round(silent / 1000)} s`);
  }

  /** Calls use with a token, or fail. */
  async #withToken(use, fail) {
    let token;
    try {
      token = await this.calls.token();
    } catch (err) {
      this.calls.trouble(`No token: ${err.message ?? err}`);
      if (!this.ended) fail();
      return;
    }
    if (!this.ended) use(token);
  }

  /** Gives the relay a new token when three quarters of the session have passed. */
  #renew(left) {
    clearTimeout(this.renewal);
    if (!this.calls.token || !(left > 0)) return;
    this.renewal = setTimeout(() => {
      if (left > 400) this.#renew(left / 4); // until the answer comes
      this.#withToken((token) => { if (this.open) this.#send({ refresh: { token } }); }, nothing);
    }, Math.min(left * 0.75, longestTimer));
  }

  /** Ends the connection for good. */
  close() {
    this.ended = true;
    this.open = false;
    clearInterval(this.reminder);
    clearTimeout(this.retry);
    clearTimeout(this.renewal);
    for (const t of this.tiles.values()) clearTimeout(t.waiting);
    this.line.close?.();
  }

  /** Of a line: the connection is there. */
  opened() {
    if (this.ended) return;
    this.open = true;
    this.limit = 0;
    this.#expect(firstTimeout * this.patience);
    this.counts.connects++;
    this.calls.link("live", "live");
    this.watches = 0;
    this.#subscribe([...this.tiles.values()].filter((t) => !t.left));
  }

  #subscribe(all) {
    const fresh = (t) => t.floor === 0 && t.areas.length === t.every.length;
    for (const t of all) t.added = [];
    this.#send({
      subscribe: {
        tiles: all.filter(fresh).map((t) => t.id),
        held: all.filter((t) => !fresh(t)).map((t) => ({ tile: t.id, areas: this.#named(t), ...wire.held({ at: this.#have(t), floor: t.floor }) })),
      },
    });
  }

  /** The areas of a tile as the relay is told: none for every one. */
  #named(t) { return t.areas.length === t.every.length ? [] : t.areas; }

  /** What is held of the areas that it watches: nothing while some are to come. */
  #have(t) { return t.areas.every((a) => t.held.includes(a)) ? t.at : wire.beginning; }

  /** Watches some areas of a tile instead of those watched so far. The caller has forgotten the others. */
  watch(id, areas) {
    const t = this.tiles.get(id), added = areas.filter((a) => !t.areas.includes(a));
    if (added.length === 0 && areas.length === t.areas.length) return;
    t.areas = areas;
    t.held = t.held.filter((a) => areas.includes(a));
    if (t.left || !this.open) return;
    this.watches++;
    if (added.length) t.added.push({ number: this.watches, areas: added });
    this.#send({ watch: { tile: id, areas: this.#named(t), number: this.watches } });
  }

  /**
   * Hears of a tile from now on, from scratch, with all of its areas. It may be called at any time. tile is the name of
   * one, hexadecimal, or {id, areas, watch} with the numbers of all its areas if it has some, and those to begin with if
   * it is not to be all. Of a tile that is joined already nothing changes.
   */
  join(tile) {
    const { id, areas, watch } = typeof tile === "string" ? { id: tile, areas: [0] } : tile, known = this.tiles.get(id);
    if (known && !known.left) return;
    const t = {
      id, every: areas, areas: watch ?? areas, added: [], held: [], left: false, // the tile's areas; those watched, added since, here
      at: wire.beginning, floor: known?.floor ?? 0, synced: false, broken: false, asked: never, stale: 0,
    };
    this.tiles.set(id, t);
    if (this.open) this.#subscribe([t]);
  }

  /** Hears no more of a tile. The epoch floor is kept: join it again, and nothing older is shown than was before. */
  leave(id) {
    const t = this.tiles.get(id);
    if (!t || t.left) return;
    clearTimeout(t.waiting);
    Object.assign(t, { left: true, broken: false, waiting: undefined, unknown: undefined });
    if (this.open) this.#send({ unsubscribe: { tiles: [id] } });
  }

  /**
   * Of a line: the connection is lost, with the status of the WebSocket. The client connects again after a while, longer
   * after each failure, but not if the player is refused.
   */
  closed(reason, code) {
    if (this.ended || this.retry !== undefined) return; // it connects again already
    if (code === refused) {
      this.close();
      return this.calls.link("ended", reason || "refused");
    }
    this.open = false;
    clearTimeout(this.renewal);
    const cap = Math.min(backoff.max, backoff.min * 2 ** this.failures++);
    for (const t of this.tiles.values()) t.asked = never;
    this.calls.link("lost", reason ? `${reason}: reconnecting` : "reconnecting");
    this.retry = setTimeout(() => this.connect(), cap / 2 + Math.random() * (cap / 2));
  }

  #send(message) { this.line.send(JSON.stringify(message)); }

  /** Of a line: a message, and when it arrived, ms since 1970. */
  message(text, at) {
    if (this.ended || !this.open) return; // of a connection that was given up
    this.#expect(Math.min(this.limit * this.patience, longestLimit));
    this.failures = 0; // not before: a player who is refused is so when the connection is open
    let m;
    try {
      m = JSON.parse(text);
    } catch {
      return this.calls.trouble("The relay sent something that is not JSON.");
    }
    if (m.heartbeat) return this.#heartbeat(Number(m.heartbeat.intervalMs));
    if (m.sync || m.frame) [this.patience, this.within] = [1, this.limit];
    let tile = this.tiles.get(m.tile);
    if (tile?.left) tile = undefined;
    try {
      if (m.frame && tile?.synced) this.#frame(tile, wire.frame(m.frame), at);
      else if (m.sync && tile) this.#sync(tile, wire.sync(m.sync));
      else if (m.error?.code === "CODE_STALE" && tile) this.#behind(tile);
      else if (m.error?.code === "CODE_UNKNOWN_EPOCH" && tile) this.#unknown(tile);
      else if (m.error) this.calls.trouble(`Relay: ${m.error.message ?? m.error.code}`, m.error.code);
      else if (m.session) this.#renew(Number(m.session.expiresInMs ?? 0));
      else if (m.goAway) this.calls.link("wait", "relay is leaving");
    } catch (err) {
      if (!(err instanceof wire.WireError) || !tile) throw err;
      this.#gap(tile, wire.beginning); // what the client holds of the tile is not to be trusted any more
    }
  }

  /** The relay is there, and says how often it says so. */
  #heartbeat(interval) {
    if (!(interval > 0)) return;
    this.limit = Math.min(2.5 * interval, longestLimit);
    this.within = Math.min(this.limit * this.patience, longestLimit);
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
      this.#gap(tile, this.#have(tile));
    }
  }

  #apply(tile, f, arrived) {
    this.calls.apply(tile.id, f, arrived);
    this.counts.frames++;
    this.#moveTo(tile, f.position);
  }

  #sync(tile, s) {
    this.counts.syncs++;
    if (!s.replace && !tile.synced) return; // of an earlier join; the answer to this one is on its way
    if (s.opens) return this.#opens(tile, s);
    if (s.position.epoch < tile.floor) {
      this.counts.stale++;
      return this.#behind(tile);
    }
    if (s.replace) {
      tile.held = this.#counting(tile, s);
      this.calls.restore(tile.id, s.blob, tile.held);
      tile.synced = true;
      this.#moveTo(tile, s.from);
    }
    for (const f of s.tail) if (f.prev.key === tile.at.key) this.#apply(tile, f, 0);
    if (s.ownerEpoch > 0) this.calls.owner(tile.id, s.ownerEpoch, s.ownerContact);
    if (tile.at.key === s.position.key) return this.#mend(tile);
    tile.asked = performance.now() - resyncTimeout + fruitlessPause;
    this.#gap(tile, wire.beginning);
  }

  /** The areas of a Sync that were watched without a break since the last Watch that the relay had seen. */
  #counting(tile, s) {
    tile.added = tile.added.filter((a) => a.number > s.watch);
    const late = tile.added.flatMap((a) => a.areas), brings = s.areas.length ? s.areas : tile.every;
    return brings.filter((a) => tile.areas.includes(a) && !late.includes(a));
  }

  /** Takes up areas that are watched newly, at the position that is held. */
  #opens(tile, s) {
    if (!tile.synced) return;
    if (s.position.key !== tile.at.key) return this.#gap(tile, wire.beginning);
    const fresh = this.#counting(tile, s).filter((a) => !tile.held.includes(a));
    if (fresh.length === 0) return;
    this.calls.open(tile.id, s.blob, fresh);
    let at = s.from;
    for (const f of s.tail) {
      if (f.prev.key !== at.key) continue;
      this.calls.apply(tile.id, f, 0, fresh);
      at = f.position;
    }
    if (at.key !== s.position.key) return this.#gap(tile, wire.beginning);
    tile.held = [...tile.held, ...fresh];
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
    tile.unknown = undefined;
  }

  /** The relay is behind: keep what is held, and ask again after a pause that doubles each time. */
  #behind(tile) {
    if (tile.waiting) return;
    const cap = Math.min(backoff.max, backoff.min * 2 ** tile.stale++);
    tile.waiting = setTimeout(() => this.#askAgain(tile), cap / 2 + Math.random() * (cap / 2));
    this.calls.trouble(`The relay is behind this client (epoch ${tile.floor}): asking again.`, "CODE_STALE");
  }

  /**
   * The store knows no epoch as high as the floor. If relays have said so for long, one has shown what never was: forget
   * it, and ask for everything.
   */
  #unknown(tile) {
    tile.unknown ??= performance.now();
    if (performance.now() - tile.unknown < forgetAfter) return this.#behind(tile);
    clearTimeout(tile.waiting);
    Object.assign(tile, {
      at: wire.beginning, floor: 0, synced: false, held: [], stale: 0, waiting: undefined, unknown: undefined,
    });
    this.counts.resyncs++;
    this.#send({ resync: { tile: tile.id, ...wire.held({ at: wire.beginning, floor: 0 }) } });
  }

  #askAgain(tile) {
    tile.waiting = undefined;
    if (!this.open || tile.stale === 0) return;
    if (tile.stale % staleAsks === 0) {
      this.open = false;
      return this.connect(); // perhaps to another relay
    }
    this.counts.resyncs++;
    this.#send({ resync: { tile: tile.id, ...wire.held({ at: this.#have(tile), floor: tile.floor }) } });
  }

  /** Looks after everything that is overdue. */
  remind() {
    this.#watchdog();
    if (!this.open) return;
    for (const t of this.tiles.values()) if (t.broken) this.#gap(t, t.have ?? wire.beginning);
  }
}
