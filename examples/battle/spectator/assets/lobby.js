// The lobby: how many wait for a match and for how long, the seats of each tile, and why the ticket that waits longest
// waits.

import { css, rgb, shortTile } from "./palette.js";
import { digits } from "./panel.js";

const $ = (id) => document.getElementById(id);
const seconds = (ms) => (ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : `${digits(ms / 1000)} s`);
const remembered = 60; // looks that the depth of the queue is drawn of
const lookEvery = 500; // ms between them, at least

function write(node, text) { if (node.textContent !== text) node.textContent = text; }

export class LobbyCard {
  constructor() {
    this.tiles = new Map();
    this.depths = [];
    this.looked = 0;
  }

  /** Shows what the servers say; ownerOf gives a tile its colour. */
  show(lobby, ownerOf) {
    $("lobby").hidden = !lobby;
    if (!lobby) return;
    const killed = lobby.killed ? `, ${digits(lobby.killed)} killed so far` : "";
    write($("lobby-workers"), `${lobby.workers} match workers${killed}`);
    write($("lobby-waiting"), digits(lobby.waiting + lobby.matching));
    write($("lobby-matches"), digits(lobby.matches));
    write($("lobby-seated"), digits(lobby.seated));
    write($("lobby-cancelled"), digits(lobby.cancelled + lobby.timedOut));
    write($("lobby-wait50"), lobby.wait.samples ? seconds(lobby.wait.p50) : "–");
    write($("lobby-wait99"), lobby.wait.samples ? seconds(lobby.wait.p99) : "–");
    const t = lobby.longest;
    write($("lobby-longest"), t ? `${t.players.join(" and ")}, rating ${t.rating}, ${seconds(t.waited)}: ${t.why}` : "nobody waits");
    for (const s of lobby.tiles ?? []) this.#seats(s, ownerOf(s.tile));
    this.#depth(lobby.waiting + lobby.matching);
  }

  /** One mark for each seat of a tile: full if it is held or taken. */
  #seats(s, owner) {
    let row = this.tiles.get(s.tile);
    if (!row) {
      row = document.createElement("li");
      row.append(document.createElement("b"), document.createElement("span"));
      write(row.firstElementChild, shortTile(s.tile));
      this.tiles.set(s.tile, row);
      $("lobby-seats").append(row);
    }
    const marks = row.lastElementChild;
    while (marks.children.length < s.seats) marks.append(document.createElement("i"));
    while (marks.children.length > s.seats) marks.lastElementChild.remove();
    [...marks.children].forEach((m, i) => m.classList.toggle("used", i < s.used));
    row.style.setProperty("--owner", css(rgb(owner)));
    row.classList.toggle("closed", !s.serving);
    row.title = `${s.used} of ${s.seats} seats${s.serving ? "" : "; its owner offers none now"}`;
  }

  #depth(n) {
    if (performance.now() - this.looked < lookEvery) return;
    this.looked = performance.now();
    this.depths.push(n);
    if (this.depths.length > remembered) this.depths.shift();
    const most = Math.max(4, ...this.depths);
    const points = this.depths.map((d, i) => `${i * 100 / (remembered - 1)},${(20 - 18 * d / most).toFixed(1)}`);
    $("lobby-depth").setAttribute("points", points.join(" "));
  }
}
