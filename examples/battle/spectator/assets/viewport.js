// A player who is followed: which areas its client watches, and what they cost beside the whole tile. In the player's
// view the page watches those areas itself, and nothing else.

import { measure } from "./wire.js";

const $ = (id) => document.getElementById(id);
const text = new TextDecoder();
const remembered = 40; // ticks that the means look back
const budget = 600; // bytes a client and tick

export class Viewport {
  /** changed() is called after each change of what is watched or shown. crossings say where the player's ship is. */
  constructor(views, crossings, changed) {
    this.views = views;
    this.crossings = crossings;
    this.changed = changed;
    this.player = null; // { view, id, name, shown }
    this.areas = []; // that the player watches, its own area first
    this.only = false; // the page sees what the player sees
    this.ticks = []; // { seen, whole } in bytes; whole is null in the player's view
    this.whole = 0; // the mean of the tile, as long as the page saw all of it
    $("player-only").addEventListener("click", () => this.see(!this.only));
    $("player-stop").addEventListener("click", () => this.follow(null));
  }

  /** Follows a ship of a tile; null: no more. */
  follow(view, ship) {
    const only = this.only;
    if (only) this.see(false);
    this.player = view && { view, id: ship.id, name: ship.name, shown: text.decode(ship.owner) };
    this.crossings.follow(this.player?.name ?? "");
    this.areas = [];
    this.ticks = [];
    this.whole = 0;
    this.look();
    this.changed();
    this.show();
  }

  see(only) {
    this.only = only && this.player !== null;
    this.changed();
    this.show();
  }

  /** Looks where the player's ship is, and with it the areas that are watched. */
  look() {
    const { player } = this, seen = player && this.crossings.get(player.name);
    if (!seen || seen.to || !seen.value) return;
    const view = this.views.get(seen.tile), own = view.fleet.areaOf[seen.value.cell];
    if (view === player.view && own === this.areas[0]) return;
    if (view !== player.view) this.ticks = [];
    Object.assign(player, { view, id: seen.value.id });
    this.areas = [own, ...view.around[own - 1]];
    this.changed();
  }

  /** Counts one batch of a tile. */
  count(view, payload) {
    if (view !== this.player?.view) return;
    let seen = 0;
    for (const [area, bytes] of measure(payload)) if (area === 0 || this.areas.includes(area)) seen += bytes;
    this.ticks.push({ seen, whole: this.only ? null : payload.length });
    if (this.ticks.length > remembered) this.ticks.shift();
  }

  show() {
    const { player } = this;
    $("player").hidden = !player;
    if (!player) return;
    const mean = (list) => (list.length ? list.reduce((n, v) => n + v, 0) / list.length : 0);
    const seen = mean(this.ticks.map((t) => t.seen)), whole = mean(this.ticks.map((t) => t.whole).filter((v) => v !== null));
    if (!this.only) this.whole = whole;
    const top = Math.max(budget, this.whole, seen);
    $("player-name").textContent = player.shown;
    $("player-areas").textContent = `${this.areas.length} of ${player.view.fleet.all.length} areas`;
    for (const [name, value] of [["seen", seen], ["whole", this.whole], ["budget", budget]]) {
      $(`player-${name}`).textContent = String(Math.round(value));
      $(`player-${name}-bar`).style.transform = `scaleX(${(value / top).toFixed(3)})`;
    }
    $("player-only").setAttribute("aria-pressed", String(this.only));
  }
}
