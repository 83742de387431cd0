// What is being broken on purpose: the card on the map that says what, where and for how long, and the parts
// of the deployment, of which the one that suffers lights up.

import { short } from "./palette.js";

const $ = (id) => document.getElementById(id);
const seconds = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

function element(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

function write(node, text) { if (node.textContent !== text) node.textContent = text; }

/** How a fault stands: "hit" while it lasts, "healing" until all is well, "over". */
export const phase = (f) => (f.over ? "over" : f.healed ? "healing" : "hit");

export class ChaosCard {
  constructor() {
    this.systems = new Map();
  }

  /** Shows what the servers say; now is the time by their clock. */
  show(chaos, now) {
    $("chaos").hidden = $("systems").hidden = !chaos;
    if (!chaos) return;
    this.#systems(chaos);
    const f = chaos.fault, state = f ? phase(f) : "calm";
    $("chaos").dataset.state = $("systems").dataset.state = state;
    $("chaos").classList.toggle("open-ended", state === "hit" && !f.lasts);
    write($("chaos-number"), f ? `fault ${f.id}` : "no fault yet");
    write($("chaos-seed"), `seed ${chaos.seed}`);
    write($("chaos-kind"), f ? f.kind : "all is well");
    const where = f?.host ? short(f.host) : f?.node ?? "";
    write($("chaos-where"), where);
    write($("chaos-means"), f ? f.means : "In a moment something will break.");
    write($("chaos-time"), !f ? "" : f.over ? `✓ ${seconds(f.recovery)}` : seconds(Math.max(0, now - f.began)));
    write($("chaos-state"), this.#state(f));
    const part = !f || f.over ? 0 : f.healed ? 1 : f.lasts ? Math.min(1, (now - f.began) / f.lasts) : 1;
    $("chaos-bar").style.transform = `scaleX(${f?.over ? 1 : part})`;
  }

  #state(f) {
    if (!f) return "";
    if (f.over) return f.summary;
    const n = f.suffer?.length ?? 0, tiles = n === 1 ? "1 tile" : `${n} tiles`;
    const how = n ? `${tiles} not well yet` : "every tile is well";
    return f.healed ? `put right; ${how}` : how;
  }

  #systems({ systems, fault }) {
    const list = $("systems"), hurt = fault && !fault.over ? fault : {};
    for (const s of systems ?? []) {
      let row = this.systems.get(s.name);
      if (!row) {
        row = element("li");
        row.append(element("span", "", s.name));
        for (const n of s.nodes?.length ? s.nodes : [s.name]) {
          const dot = element("i");
          dot.dataset.node = dot.title = n;
          row.append(dot);
        }
        this.systems.set(s.name, row);
        list.append(row);
      }
      const here = hurt.system === s.name;
      row.classList.toggle("hurt", here);
      for (const dot of row.querySelectorAll("i")) dot.classList.toggle("down", here && (!hurt.node || hurt.node === dot.dataset.node));
    }
  }
}
