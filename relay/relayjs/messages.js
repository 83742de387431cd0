// The relay's messages, decoded: protobuf's JSON mapping writes 64-bit numbers as decimal strings, bytes as base64, and
// leaves out what is zero. Every function throws a WireError on what it cannot read.

/** What was received cannot be read. A callback of Client that throws it has the tile repaired. */
export class WireError extends Error {}

function number(v) {
  const n = Number(v ?? 0);
  if (!Number.isSafeInteger(n) || n < 0) throw new WireError("malformed message: number out of range");
  return n;
}

function bytes(v) {
  if (v === undefined) return new Uint8Array(0);
  if (typeof v !== "string") throw new WireError("malformed message: want base64");
  try {
    return Uint8Array.from(atob(v), (c) => c.charCodeAt(0));
  } catch {
    throw new WireError("malformed message: want base64");
  }
}

/** The beginning of a tile's history. */
export const beginning = Object.freeze({ epoch: 0, seq: 0, chain: "0", key: "0/0/0" });

/** A position. Two are the same history exactly if their keys are equal. The chain has 64 bits: text. */
export function position(p) {
  if (p === undefined || p === null) return beginning;
  const epoch = number(p.epoch), seq = number(p.seq), chain = String(p.chain ?? "0");
  if (!/^\d{1,20}$/.test(chain)) throw new WireError("malformed message: chain");
  return { epoch, seq, chain, key: `${epoch}/${seq}/${chain}` };
}

/** The form in which the relay reads what the client holds of a tile. */
export const held = ({ at, floor }) => ({
  position: { epoch: String(at.epoch), seq: String(at.seq), chain: at.chain }, epochFloor: String(floor),
});

export function frame(f) {
  return {
    position: position(f.position), prev: position(f.prev), tick: number(f.tick), at: number(f.atMs),
    rebase: f.kind === 2, payload: bytes(f.payload),
  };
}

export function sync(s) {
  for (const list of [s.tail, s.areas]) {
    if (list !== undefined && !Array.isArray(list)) throw new WireError("malformed message: want a list");
  }
  return {
    replace: s.replace === true, from: position(s.from), tick: number(s.tick), blob: bytes(s.blob),
    tail: (s.tail ?? []).map(frame), position: position(s.position),
    ownerEpoch: number(s.ownerEpoch), ownerContact: String(s.ownerContact ?? ""),
    opens: s.opens === true, areas: (s.areas ?? []).map(number), watch: number(s.watch),
  };
}

/** Reads big-endian fields and varints off a Uint8Array. */
export class Reader {
  constructor(bytes, what) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
    this.what = what;
  }
  get left() { return this.bytes.length - this.at; }
  fail(why) { throw new WireError(`malformed ${this.what}: ${why}`); }
  skip(n) {
    if (this.left < n) this.fail("cut short");
    this.at += n;
    return this.at - n;
  }
  u8() { return this.view.getUint8(this.skip(1)); }
  u16() { return this.view.getUint16(this.skip(2)); }
  varint(limit = Number.MAX_SAFE_INTEGER) {
    let v = 0;
    for (let scale = 1; scale < 2 ** 56; scale *= 128) {
      const b = this.u8();
      v += (b & 127) * scale;
      if (b < 128) {
        if (v > limit || (b === 0 && scale > 1)) this.fail("number out of range");
        return v;
      }
    }
    return this.fail("oversized number");
  }
  take(n) {
    const at = this.skip(n);
    return this.bytes.subarray(at, at + n);
  }
  end() { if (this.left) this.fail(`${this.left} bytes after the end`); }
}

/**
 * The parts of a list, [area, Reader]: areas of the tile, ascending, none of them empty. Payloads are such lists, and
 * so are the snapshots of a divided tile.
 */
export function* parts(list, what) {
  const r = new Reader(list, what);
  for (let last = -1; r.left;) {
    const area = r.u8(), content = new Reader(r.take(r.varint()), what);
    if (area <= last || !content.left) r.fail("areas out of order, or an empty one");
    yield [area, content];
    last = area;
  }
}
