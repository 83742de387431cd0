// The plate on a tile that says whose it is.

import { css, grey, mix, rgb, short } from "./palette.js";

const sans = "system-ui, sans-serif", mono = "ui-monospace, Menlo, Consolas, monospace";

/**
 * Draws a label whose first line is centred on a place. The tile gives owner, epoch, seq, tick and known;
 * contested, refusal and fault add a line each; beat, from 1 to 0, is how recently a batch came; small leaves out
 * what a narrow tile has no room for.
 */
export function drawLabel(ctx, [cx, cy], tile) {
  const { small } = tile, pad = small ? 5 : 8, step = small ? 13 : 16, bar = 4;
  const lines = compose(tile);
  const width = Math.max(...lines.map((l) => measure(ctx, l))) + 2 * pad + 2 * bar, height = lines.length * step + pad;
  const left = Math.round(cx - width / 2), top = Math.round(cy - step / 2);
  ctx.fillStyle = "rgba(6,10,17,.74)";
  ctx.beginPath();
  ctx.roundRect(left, top, width, height, 6);
  ctx.fill();
  ctx.fillStyle = css(mix(tile.known ? rgb(tile.owner) : grey, [255, 255, 255], 0.75 * tile.beat));
  ctx.beginPath();
  ctx.roundRect(left, top, bar, height, [6, 0, 0, 6]);
  ctx.fill();
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  lines.forEach((l, i) => {
    let x = left + bar + pad;
    for (const part of l) {
      ctx.font = part.font;
      ctx.fillStyle = part.colour;
      ctx.fillText(part.text, x, top + pad / 2 + step * (i + 0.5));
      x += part.width + gap;
    }
  });
  ctx.textBaseline = "alphabetic";
}

const gap = 8; // px between the parts of a line

function measure(ctx, line) {
  for (const part of line) {
    ctx.font = part.font;
    part.width = ctx.measureText(part.text).width;
  }
  return line.reduce((w, part) => w + part.width + gap, -gap);
}

/** The label's lines, each a list of parts. */
function compose({ known, owner, epoch, seq, tick, contested, refusal, fault, small }) {
  const epochText = (e) => (small ? `e${e}` : `epoch ${e}`);
  const loud = `600 ${small ? 11 : 14}px ${sans}`, plain = `${small ? 10 : 12}px ${sans}`, note = `600 11px ${sans}`;
  const name = !known ? "waiting for the relay" : owner ? short(owner, small ? 12 : 18) : "nobody";
  const first = [{ text: name, font: loud, colour: "#f3f7ff" }];
  if (epoch) first.push({ text: epochText(epoch), font: plain, colour: "rgba(206,220,240,.86)" });
  const lines = [first];
  if (!small) lines.push([{ text: `seq ${seq} · tick ${tick}`, font: `11px ${mono}`, colour: "rgba(190,205,228,.82)" }]);
  if (contested) lines.push([{ text: "being taken over…", font: note, colour: "#fff" }]);
  if (refusal) {
    const text = `✓ ${short(refusal.owner, 12)} fenced off: ${epochText(refusal.epoch)}`;
    lines.push([{ text, font: note, colour: "#9cc9e6" }]);
  }
  if (fault) {
    lines.push([{ text: `✕ ${fault.kind}`, font: note, colour: fault.mending ? "#ffc46b" : "#ff8f7a" },
      { text: `${(fault.for / 1000).toFixed(1)} s`, font: note, colour: "#f3f7ff" }]);
  }
  return lines;
}
