// The column beside the map: figures, the list of tiles with their buttons, and the history of epochs.

import { css, owners, rgb, short, shortTile } from "./palette.js";
import { Streams } from "./streams.js";

const fingers = matchMedia("(hover: none)");
const $ = (id) => document.getElementById(id);
const logLines = 60;
const earlyBy = 3000; // ms that a refusal may come before the install it belongs to
const budget = 600; // bytes a client and tick
const attachWithin = 60_000; // ms after an install in which a refusal belongs to it

/** Says by how much a tile's time is dilated, if it is. */
export const slower = (tile) => (tile.dilation > 1 ? ` · time × ${tile.dilation}` : "");

/** Thousands apart by thin spaces, so that a running number stays readable. */
export const digits = (n) => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
const millis = (v) => (v < 10 ? v.toFixed(1) : Math.round(v));
const clock = (at) => new Date(at).toTimeString().slice(0, 8);

function element(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

// Writing a text that is there already would make screen readers and layout work for nothing.
function write(node, text) { if (node.textContent !== text) node.textContent = text; }

export class Panel {
  constructor(world, { takeOver, highlight }) {
    this.rows = new Map();
    this.newest = new Map(); // tile → its latest line in the history
    this.faults = new Map(); // number → its line in the history
    this.early = []; // events that wait for the install they belong to
    this.streams = new Streams(world.tickMs);
    for (const t of world.tiles) {
      const row = tileRow(t.tile, takeOver, highlight, this.streams.line(t.tile));
      this.rows.set(t.tile, row);
      $("tiles").append(row.li);
    }
    write($("n-tiles"), `${world.tiles.length} × ${digits(world.tiles[0].cells.length / 2)} cells`);
  }

  link(state, text) {
    $("link").dataset.state = state;
    write($("link").lastElementChild, text);
  }

  figures(status, page, counts, crossings) {
    write($("n-crossings"), digits(crossings));
    if (page) {
      write($("page50"), `${millis(page.p50)}`);
      write($("page99"), `${millis(page.p99)}`);
    }
    write($("n-gaps"), digits(counts.gaps + (status?.gaps ?? 0)));
    write($("n-repairs"), digits(counts.repairs + (status?.repairs ?? 0)));
    $("n-gaps").title = `this page ${counts.gaps}, bots ${status?.gaps ?? 0}`;
    $("n-repairs").title = `this page ${counts.repairs}, bots ${status?.repairs ?? 0}`;
    if (!status) return;
    const { latency } = status;
    write($("botsname"), status.bots ? `${digits(status.bots)} bots` : "bots");
    write($("bots50"), latency.samples ? `${millis(latency.p50)}` : "–");
    write($("bots99"), latency.samples ? `${millis(latency.p99)}` : "–");
    write($("n-commits"), status.commits.toFixed(1));
    write($("n-events"), digits(status.events));
    write($("n-watchers"), digits(status.watchers));
    const known = { cold: status.cold_reads, stale: status.stale_drops, tails: status.superseded_tails, dead: status.dead_letters };
    for (const [id, n] of Object.entries(known)) write($(`n-${id}`), n === undefined ? "–" : digits(n));
    const sent = status.bytes_per_tick;
    write($("sent"), `${sent ? digits(sent) : "–"} of ${budget} bytes`);
    $("sent-bar").style.transform = `scaleX(${Math.min(1, sent / budget).toFixed(3)})`;
    $("sent").parentElement.classList.toggle("over", sent > budget);
    this.#ledger(status.ledger ?? {});
    this.streams.show(status.tiles);
  }

  /** What became of the actions: a part of the bar for each outcome. */
  #ledger(outcomes) {
    const names = Object.keys(outcomes);
    $("ledger").hidden = names.length === 0;
    for (const list of [$("ledger-outcomes"), $("ledger-bar")]) {
      while (list.children.length < names.length) list.append(element(list === $("ledger-bar") ? "i" : "li"));
    }
    names.forEach((name, i) => {
      const text = $("ledger-outcomes").children[i], part = $("ledger-bar").children[i];
      text.className = part.className = name;
      write(text, `${digits(outcomes[name])} ${name}`);
      part.style.flexGrow = outcomes[name];
    });
  }

  /** The chips of the owners in the header, with how many tiles each has. */
  owners(tiles) {
    const held = new Map();
    for (const t of tiles) held.set(t.owner, (held.get(t.owner) ?? 0) + 1);
    const list = $("owners");
    for (const o of owners()) {
      let chip = [...list.children].find((c) => c.dataset.owner === o);
      if (!chip) {
        chip = element("li");
        chip.dataset.owner = o;
        chip.title = o;
        chip.append(element("i"), element("span"), element("b"), element("em"));
        chip.children[0].style.background = css(rgb(o));
        list.append(chip);
      }
      write(chip.children[1], short(o)); // shorter once another owner is known
      write(chip.children[2], String(held.get(o) ?? 0));
      chip.classList.toggle("none", !held.get(o));
    }
  }

  /** Marks the host that a fault has hit; null: none. */
  hurt(fault) {
    for (const chip of $("owners").children) {
      const here = fault?.host === chip.dataset.owner;
      chip.classList.toggle("hurt", here);
      if (here) write(chip.children[3], fault.kind.replace("owner ", ""));
    }
  }

  /** One tile's row: what this page holds of it, and what the server says. */
  tile(view, status) {
    const row = this.rows.get(view.id);
    row.li.style.setProperty("--owner", css(rgb(view.owner)));
    write(row.owner, view.owner ? short(view.owner) : "nobody");
    row.owner.title = view.owner;
    write(row.epoch, view.epoch ? `epoch ${view.epoch}` : "");
    const moved = status?.mints > 1 ? ` · moved ${status.mints - 1}×` : "";
    write(row.position, `seq ${digits(view.seq)} · tick ${digits(view.tick)}${moved}${status ? slower(status) : ""}`);
    row.proof.dataset.state = view.proof;
    write(row.proof, { same: "✓ in sync", differs: "≠ differs", unknown: "" }[view.proof]);
    row.proof.title = view.proof === "same" ? `This page's state has the owner's digest ${view.digest.slice(0, 16)}…` : "";
    row.button.disabled = view.contested;
    write(row.button, view.contested ? "Taking…" : "Take over");
    // A single process that serves is what the line above says already.
    const processors = status?.processors ?? [];
    this.#processors(row, status?.epoch ?? 0, processors.length === 1 && processors[0].state === "serving" ? [] : processors);
  }

  #processors(row, epoch, list) {
    const text = JSON.stringify([epoch, list]);
    if (row.processors.dataset.shown === text) return;
    row.processors.dataset.shown = text;
    row.processors.replaceChildren(...list.map((p) => {
      // It lost the tile and will learn so from its next commit.
      const stale = p.state === "serving" && p.epoch < epoch;
      const state = stale ? "does not know yet" : p.state;
      const chip = element("span", `processor ${stale ? "stale" : p.state.replaceAll(" ", "-")}`);
      const dot = element("i");
      dot.style.background = css(rgb(p.contact));
      chip.append(dot, `${short(p.contact, 14)} ${state}${p.epoch ? ` · e${p.epoch}` : ""}`);
      return chip;
    }));
  }

  /**
   * Shows one event. An install opens a line of its own; what its loser did is added to that line. The two
   * come from different processes, so the loser's word may be here first: then it waits for a moment.
   */
  event(e) {
    if (e.fault) return this.#fault(e);
    const line = this.newest.get(e.tile);
    if ((e.kind === "refused" || e.kind === "stood-down") && line && e.epoch) {
      if (line.epoch > e.epoch && e.at - line.at < attachWithin) return this.#attach(line, e);
      if (line.epoch === e.epoch) return this.#keep(e);
    }
    this.#line(e, line);
  }

  /** A fault's line begins with it; its end is added to that line. */
  #fault(e) {
    const begun = this.faults.get(e.fault);
    if (e.kind === "recovered" && begun) {
      begun.append(element("p", e.kind, `✓ ${e.text}`));
      begun.classList.add("over");
      return;
    }
    const li = element("li", e.kind), head = element("div", "head");
    head.append(element("time", "", clock(e.at)), element("span", "number", `fault ${e.fault}`));
    if (e.tile) head.append(element("b", "", shortTile(e.tile)));
    li.append(head, element("p", "", e.text));
    if (e.kind === "fault") this.faults.set(e.fault, li);
    this.#top(li);
  }

  #top(li) {
    $("log").prepend(li);
    $("log-empty").hidden = true;
    while ($("log").children.length > logLines) $("log").lastElementChild.remove();
  }

  #keep(e) {
    this.early.push(e);
    setTimeout(() => {
      if (!this.early.includes(e)) return;
      this.early = this.early.filter((x) => x !== e);
      this.#line(e, null);
    }, earlyBy);
  }

  #attach(line, e) {
    const word = `${e.kind} ${e.owner} ${e.epoch}`;
    if (line.told.has(word)) return; // an owner that retries is refused again
    line.told.add(word);
    const late = e.at - line.at, note = element("p", e.kind, e.text);
    if (late >= 0) note.append(element("small", "", `+${digits(late)} ms`));
    line.body.append(note);
  }

  #line(e, last) {
    const li = element("li", e.kind), head = element("div", "head");
    const change = last?.epoch < e.epoch ? `epoch ${last.epoch} → ${e.epoch}` : `epoch ${e.epoch}`;
    head.append(element("time", "", clock(e.at)));
    if (e.tile) head.append(element("b", "", shortTile(e.tile)));
    if (e.kind === "installed" && e.epoch) head.append(element("span", "epoch", change));
    const text = e.text.startsWith(`${change}: `) ? e.text.slice(change.length + 2) : e.text; // the head says it already
    li.append(head, element("p", "", text));
    if (e.owner) li.style.setProperty("--owner", css(rgb(e.owner)));
    this.#top(li);
    if (e.kind !== "installed") return;
    const line = { at: e.at, epoch: e.epoch, body: li, told: new Set() };
    this.newest.set(e.tile, line);
    const mine = this.early.filter((x) => x.tile === e.tile && x.epoch < e.epoch);
    this.early = this.early.filter((x) => !mine.includes(x));
    for (const x of mine) this.#attach(line, x);
  }

  /** Forgets who owned the tiles, and under which epochs: the servers are other ones. */
  forget() {
    this.newest.clear();
    this.faults.clear();
    $("owners").replaceChildren();
  }

  /** The epoch a tile had when the page began, so that its first change can say from what. */
  began(tile, epoch) {
    if (!this.newest.has(tile)) this.newest.set(tile, { at: -Infinity, epoch, body: null });
  }

  toast(text) {
    const t = $("toast");
    t.textContent = text;
    t.hidden = false;
    clearTimeout(this.toastTimer);
    this.toastTimer = setTimeout(() => { t.hidden = true; }, 6000);
  }

  /** What a click on the tile under the pointer would do. */
  tip(pointed) {
    const tip = $("tip");
    tip.hidden = !pointed;
    if (!pointed) return;
    const { view, x, y, ship } = pointed;
    const held = view.owner ? ` held by ${short(view.owner)} under epoch ${view.epoch}` : " held by nobody";
    tip.replaceChildren(element("b", "", shortTile(view.id)), element("span", "", held),
      element("em", "", ship ? `click to follow ${new TextDecoder().decode(ship.owner)}` : view.contested ? "being taken over…" : `${fingers.matches ? "tap again" : "click"} to take it over`));
    const stage = $("stage").getBoundingClientRect(), w = tip.offsetWidth, h = tip.offsetHeight;
    if (fingers.matches) { // out of the way of the finger, and of what it points at
      tip.style.left = "8px";
      tip.style.top = `${stage.height - h - 8}px`;
      return;
    }
    tip.style.left = `${Math.min(stage.width - w - 8, Math.max(8, x + 16))}px`;
    tip.style.top = `${y + 20 + h > stage.height ? y - h - 14 : y + 20}px`;
  }
}

function tileRow(id, takeOver, highlight, stream) {
  const li = element("li");
  const name = element("b", "", shortTile(id));
  const owner = element("span", "owner"), epoch = element("span", "epoch"), proof = element("span", "proof");
  const button = element("button", "take", "Take over");
  const position = element("span", "position"), processors = element("div", "processors");
  button.type = "button";
  button.setAttribute("aria-label", `Take over tile ${shortTile(id)}`);
  button.addEventListener("click", () => takeOver(id));
  const first = element("div", "first");
  first.append(name, owner, epoch, button);
  const second = element("div", "second");
  second.append(position, proof);
  li.append(first, second, stream, processors);
  for (const on of ["pointerenter", "focusin"]) li.addEventListener(on, () => highlight(id));
  for (const off of ["pointerleave", "focusout"]) li.addEventListener(off, () => highlight(null));
  return { li, owner, epoch, position, proof, button, processors };
}

