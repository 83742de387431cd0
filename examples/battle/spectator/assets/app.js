// The page: it asks for the world, listens to the relay, folds what it hears, and shows it beside what the
// servers say of themselves.

import { ChaosCard, phase } from "./chaos.js";
import { Client } from "../relay/client.js";
import { Crossings } from "../relay/crossings.js";
import { Fleet, digest } from "./fleet.js";
import { Clock, Meter } from "./meter.js";
import { LobbyCard } from "./lobby.js";
import { showPilots } from "./pilots.js";
import { OwnershipTable } from "./ownership.js";
import { forgetOwners, introduce, shortTile } from "./palette.js";
import { Panel } from "./panel.js";
import { Scene } from "./scene.js";
import { Ticket } from "./ticket.js";
import { Viewport } from "./viewport.js";

const pollEvery = 500; // ms between two looks at the servers' status
const pollFaults = 200; // the same while something is broken on purpose
const patience = 15_000; // ms to wait for a takeover before the button is offered again
const silence = 3000; // ms to wait for the servers' word on a new epoch before the page tells it itself
const remembered = 16; // own states kept a tile, to compare with the owner's digest of an earlier batch

const $ = (id) => document.getElementById(id);

class Page {
  constructor(world) {
    this.clock = new Clock();
    this.meter = new Meter($("strip"));
    this.status = null;
    this.lastEvent = 0;
    this.joined = new Set(); // tiles that the player's ship goes to, while the page sees what the player sees
    const joins = (change) => (tile) => queueMicrotask(() => { // not while a tile is folded
      change(tile);
      this.watch();
    });
    this.crossings = new Crossings({ join: joins((t) => this.joined.add(t)), quit: joins((t) => this.joined.delete(t)) });
    this.views = new Map(world.tiles.map((t) => [t.tile, {
      id: t.tile, fleet: new Fleet(t.spans, t.tile, this.crossings), around: t.around, wants: null, owner: "", ownerEpoch: 0, epoch: 0, seq: 0, tick: 0,
      states: new Map(), proof: "unknown", digest: "", misses: 0, contested: 0, contestedEpoch: 0, toldEpoch: 0, untold: 0,
    }]));
    for (const v of this.views.values()) {
      v.wants = v.fleet.all; // the areas that are watched
      this.crossings.watch(v.id);
    }
    this.chaos = new ChaosCard();
    this.lobby = new LobbyCard();
    this.ticket = new Ticket();
    this.ownership = new OwnershipTable(world.tickMs);
    const takeOver = (id) => this.takeOver(id);
    this.panel = new Panel(world, { takeOver, highlight: (id) => this.scene.highlight(id) });
    this.scene = new Scene($("ground"), $("live"), world, this.crossings, {
      takeOver, hovered: (tile, x, y, ship) => this.point(tile, x, y, ship),
      follow: (id, ship) => this.viewport.follow(this.views.get(id), ship),
    });
    this.viewport = new Viewport(this.views, this.crossings, () => this.watch());
    $("follow").addEventListener("click", () => this.followAnyone());
    this.network = new Worker("/assets/network.js");
    this.network.onmessage = ({ data }) => this.heard(data);
    const line = {
      connect: (url, protocol) => this.network.postMessage({ connect: url, protocol }),
      send: (text) => this.network.postMessage({ send: text }),
      close: () => this.network.postMessage({ close: true }),
    };
    const tiles = [...this.views.values()].map((v) => ({ id: v.id, areas: v.fleet.all }));
    this.feed = new Client(relayURL(world.relay), tiles, {
      restore: (id, blob, areas) => this.restore(id, blob, areas),
      open: (id, blob, areas) => this.open(id, blob, areas),
      apply: (id, frame, arrived, areas) => this.apply(id, frame, arrived, areas),
      moved: (id, position, before) => this.moved(id, position, before),
      owner: (id, epoch, contact) => this.own(id, epoch, contact),
      link: (state, text) => this.panel.link(state, text),
      trouble: (text, code) => { if (code !== "CODE_UNAVAILABLE") this.panel.toast(text); },
    }, line);
    const zoom = { in: (c) => c.zoom(1.5), out: (c) => c.zoom(1 / 1.5), fit: (c) => c.fit() };
    for (const b of document.querySelectorAll("[data-zoom]")) b.addEventListener("click", () => zoom[b.dataset.zoom](this.scene.camera));
  }

  run() {
    this.feed.connect();
    this.poll();
    setInterval(() => this.show(), 250);
    setInterval(() => this.suffer(), 100);
  }

  heard(data) {
    if (data.message) this.feed.message(data.message, data.at);
    else if (data.opened) this.feed.opened();
    else if (data.closed) this.feed.closed(data.closed === "closed" ? "" : data.closed);
    else if ("status" in data) this.answered(data);
  }

  point(tile, x, y, ship) {
    this.pointed = tile && { view: this.views.get(tile.id), x, y, ship };
    this.panel.tip(this.pointed);
  }

  // What the relay tells.

  /** Follows a ship that is in play: anybody's. */
  followAnyone() {
    const all = [...this.views.values()].flatMap((v) => v.fleet.ships.filter((s) => s.hull > 0).map((s) => [v, s]));
    if (all.length) this.viewport.follow(...all[Math.floor(Math.random() * all.length)]);
  }

  /** Watches what is to be seen: every tile, or what the player sees. */
  watch() {
    const { player, areas, only } = this.viewport;
    for (const v of this.views.values()) {
      const here = v === player?.view, elsewhere = this.joined.has(v.id) ? v.fleet.all : [];
      const want = !only ? v.fleet.all : here ? areas : elsewhere;
      if (want.length === 0) this.crossings.unwatch(v.id);
      else if (!only || here || !this.joined.has(v.id)) this.crossings.watch(v.id);
      if (String(want) === String(v.wants)) continue;
      v.wants = want;
      v.fleet.keep(want);
      v.states.clear();
      v.proof = "unknown";
      this.scene.reset(v.id, v.fleet.ships);
      if (want.length === 0) {
        this.feed.leave(v.id);
        continue;
      }
      this.feed.join({ id: v.id, areas: v.fleet.all });
      this.feed.watch(v.id, want);
    }
    this.scene.look(player?.view.id, areas, only, player?.id);
  }

  restore(id, blob, areas) {
    const v = this.views.get(id);
    v.fleet.restore(blob, areas);
    v.states.clear();
    this.scene.reset(id, v.fleet.ships);
  }

  open(id, blob, areas) {
    const v = this.views.get(id);
    v.fleet.open(blob, areas);
    this.scene.reset(id, v.fleet.ships);
  }

  apply(id, frame, arrived, areas) {
    const v = this.views.get(id);
    const events = v.fleet.apply(frame.tick, frame.payload, areas);
    v.tick = Math.max(v.tick, frame.tick);
    if (arrived) {
      this.viewport.count(v, frame.payload);
      this.meter.frame(arrived + this.clock.ahead - frame.at, id);
      this.scene.batch(id, events, v.fleet);
    } else {
      this.scene.reset(id, v.fleet.ships);
    }
  }

  moved(id, position, before) {
    const v = this.views.get(id);
    Object.assign(v, { epoch: position.epoch, seq: position.seq });
    if (v.fleet.whole) v.states.set(position.seq, v.fleet.encode()); // the owner's digest is of the whole tile
    this.viewport.look();
    if (v.states.size > remembered) v.states.delete(v.states.keys().next().value);
    this.scene.at(id, v.epoch, v.seq, v.tick);
    if (before.epoch === 0) this.panel.began(id, position.epoch);
    else if (position.epoch > before.epoch) {
      // The batch says which epoch, not who: ask at once, so that the tile changes colour with it.
      clearTimeout(v.untold);
      if (position.epoch > v.toldEpoch) v.untold = setTimeout(() => this.tell(v, before.epoch), silence);
      this.poll();
    }
  }

  /** Writes an epoch into the history that the servers had nothing to say about. */
  tell(v, before) {
    const text = `epoch ${before} → ${v.epoch}, as the stream shows`;
    this.panel.event({ kind: "note", at: this.clock.now(), tile: v.id, epoch: v.epoch, text });
  }

  own(id, epoch, contact) {
    const v = this.views.get(id);
    if (epoch < v.ownerEpoch || !contact) return;
    introduce([contact]);
    v.ownerEpoch = epoch;
    if (contact !== v.owner) {
      v.owner = contact;
      v.contested = 0;
      this.scene.own(id, contact);
    } else if (v.contested && epoch > v.contestedEpoch) {
      v.contested = 0;
      this.scene.contest(id, false);
    }
  }

  // What the servers say of themselves.

  poll() {
    clearTimeout(this.next);
    if (this.polling) return void (this.again = true);
    this.polling = true;
    this.network.postMessage({ status: `/api/status?after=${this.lastEvent}` });
  }

  answered({ status: report, sent, received, error }) {
    this.polling = false;
    this.next = setTimeout(() => this.poll(), this.again ? 60 : this.status?.chaos ? pollFaults : pollEvery);
    this.again = false;
    if (!report) return console.warn("status:", error);
    this.clock.note(sent, received, report.status.at);
    if (this.instance !== undefined && this.instance !== report.instance) this.restarted();
    else this.take(report);
    this.instance = report.instance;
  }

  /** The servers are other ones: their events count from one again, and their epochs may. */
  restarted() {
    this.lastEvent = 0;
    for (const v of this.views.values()) Object.assign(v, { ownerEpoch: 0, toldEpoch: 0 });
    forgetOwners();
    this.panel.forget();
    this.panel.event({ kind: "note", at: this.clock.now(), text: "the servers were started again" });
    this.poll();
  }

  take({ status, events }) {
    this.status = status;
    status.tiles ??= [];
    this.ownership.show(status);
    showPilots(status.pilots);
    this.lobby.show(status.lobby, (tile) => this.views.get(tile)?.owner ?? "");
    introduce(status.tiles.flatMap((t) => [t.owner, ...(t.processors ?? []).map((p) => p.contact)]));
    for (const t of status.tiles) {
      const v = this.views.get(t.tile);
      if (!v) continue;
      this.own(v.id, t.epoch, t.owner);
      this.prove(v, t);
    }
    for (const e of events) {
      this.lastEvent = Math.max(this.lastEvent, e.id);
      this.event(e);
    }
  }

  /** Shows what is broken, where it hurts: on the card, on the tiles and on the hosts. */
  suffer() {
    const chaos = this.status?.chaos, fault = chaos?.fault, now = this.clock.now();
    this.chaos.show(chaos, now);
    const ill = new Set(fault && !fault.over ? fault.suffer ?? [] : []);
    for (const id of this.views.keys()) this.scene.suffer(id, ill.has(id) ? fault : null, now);
    this.panel.hurt(fault && phase(fault) === "hit" ? fault : null);
  }

  event(e) {
    const v = this.views.get(e.tile);
    if (v && e.kind === "installed") {
      v.toldEpoch = Math.max(v.toldEpoch, e.epoch);
      if (v.toldEpoch >= v.epoch) clearTimeout(v.untold);
      if (e.epoch >= v.ownerEpoch) this.own(v.id, e.epoch, e.owner);
    }
    // Old refusals, told to a page that has just been opened, are history, not news.
    if (v && e.kind === "refused" && this.clock.now() - e.at < 5000) this.scene.refused(v.id, e.owner, e.epoch);
    this.panel.event(e);
  }

  /** Compares the owner's digest with that of this page's own state after the same batch. */
  async prove(v, t) {
    const state = t.digest && v.states.get(t.digestSeq);
    if (!state) return;
    const own = await digest(state);
    if (own === null) return;
    v.digest = own;
    v.misses = own === t.digest ? 0 : v.misses + 1;
    // A batch that a failover took back and another that took its number may meet here once.
    if (v.misses === 0 || v.misses > 2) v.proof = v.misses ? "differs" : "same";
  }

  async takeOver(id) {
    const v = this.views.get(id);
    if (v.contested) return;
    v.contested = performance.now();
    v.contestedEpoch = v.epoch;
    this.scene.contest(id, true);
    this.show();
    try {
      const how = { method: "POST", signal: AbortSignal.timeout(patience) };
      const response = await fetch(`/api/takeover?tile=${encodeURIComponent(id)}`, how);
      if (response.ok) return void this.poll();
      throw new Error(await response.text());
    } catch (err) {
      this.calm(v);
      this.panel.toast(`Tile ${shortTile(id)} was not taken over: ${err.message}`);
    }
  }

  calm(v) {
    v.contested = 0;
    this.scene.contest(v.id, false);
  }

  show() {
    for (const v of this.views.values()) {
      if (v.contested && performance.now() - v.contested > patience) {
        this.calm(v);
        this.panel.toast(`Nobody has taken over tile ${shortTile(v.id)} yet.`);
      }
      this.panel.tile(v, this.status?.tiles.find((t) => t.tile === v.id));
    }
    this.panel.tip(this.pointed);
    this.viewport.show();
    this.panel.owners([...this.views.values()]);
    this.panel.figures(this.status, this.meter.figures(), this.feed.counts, this.scene.crossings);
    this.meter.draw((tile) => this.views.get(tile)?.owner ?? "");
  }
}

/** A path becomes a WebSocket on the page's own host. */
function relayURL(relay) {
  const url = new URL(relay, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  return url.href;
}

async function start() {
  const response = await fetch("/api/world", { signal: AbortSignal.timeout(patience) });
  if (!response.ok) throw new Error(`the world cannot be had: ${response.status}`);
  new Page(await response.json()).run();
}

start().catch((err) => {
  $("link").dataset.state = "lost";
  $("link").lastElementChild.textContent = err.message;
  setTimeout(() => location.reload(), 3000);
});
