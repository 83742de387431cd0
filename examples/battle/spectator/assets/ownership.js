// The operator's table: who owns what, since when, under which epoch, and how often it moved.

import { css, rgb, short, shortTile } from "./palette.js";
import { digits, slower } from "./panel.js";
import { lost } from "./streams.js";

const $ = (id) => document.getElementById(id);

/** A time span in its two largest units. */
function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${digits(Math.floor(s / 3600))} h ${Math.floor((s % 3600) / 60)} min`;
}

export class OwnershipTable {
  constructor(tickMs) {
    this.tickMs = tickMs;
    this.rows = new Map();
    $("ownership-open").addEventListener("click", () => this.#toggle($("ownership").hidden));
    $("ownership-close").addEventListener("click", () => this.#toggle(false));
    addEventListener("keydown", (e) => { if (e.key === "Escape" && !$("ownership").hidden) this.#toggle(false); });
  }

  /** Shows a status, while the table is open. */
  show(status) {
    this.last = status;
    if ($("ownership").hidden) return;
    this.#routing(status.routing);
    for (const t of status.tiles) this.#row(t, status.at);
  }

  /** How the gateway has found the owners, by source; nothing where it is another process. */
  #routing(r) {
    const source = (name, n) => `${name} ${digits(n.answers)} (${digits(n.stale)} stale)`;
    const text = r ? `The gateway asked for owners: ${source("gossip", r.gossip)}, ${source("store", r.store)}, ${source("redirect", r.redirect)}, `
      + `not found ${digits(r.failures)}` : "";
    if ($("ownership-routing").textContent !== text) $("ownership-routing").textContent = text;
  }

  #toggle(open) {
    $("ownership").hidden = !open;
    $("ownership-open").setAttribute("aria-expanded", String(open));
    if (!open) $("ownership-open").focus();
    else if (this.last) this.show(this.last);
  }

  #row(t, now) {
    let row = this.rows.get(t.tile);
    if (!row) {
      row = document.createElement("tr");
      for (let i = 0; i < 13; i++) row.append(document.createElement(i ? "td" : "th"));
      row.firstElementChild.scope = "row";
      this.rows.set(t.tile, row);
      $("ownership-rows").append(row);
    }
    row.style.setProperty("--owner", css(rgb(t.owner)));
    const cells = [shortTile(t.tile), t.owner ? short(t.owner, 24) : "nobody", t.epoch ? digits(t.epoch) : "–",
      t.since ? span(now - t.since) : "–", t.mints ? `${digits(Math.max(0, t.mints - 1))}×` : "–", (t.state || "–") + slower(t), String(t.followers),
      digits(t.seq), digits(t.tick), t.heat.toFixed(1), t.floor ? short(t.floor, 15) : "–", digits(t.at_risk ?? 0), lost(t.lost, this.tickMs)];
    cells.forEach((text, i) => {
      const cell = row.children[i];
      if (cell.textContent !== text) cell.textContent = text;
    });
    row.title = t.position ? `position ${t.position}` : "";
    row.dataset.state = t.state;
  }
}
