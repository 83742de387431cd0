// Owners' colours: far apart in hue and alike in brightness, on a dark ground. An owner keeps its colour
// for as long as the page is open; names are always written beside it.

const colours = [
  [53, 198, 244], [255, 177, 61], [181, 139, 255], [84, 224, 138],
  [255, 111, 145], [244, 224, 77], [255, 138, 92], [143, 179, 255],
];
const nobody = [110, 124, 145];
const given = new Map();

/** Gives colours to owners in alphabetical order, so that two pages opened on one battle agree. */
export function introduce(owners) {
  for (const o of [...owners].sort()) if (o && !given.has(o)) given.set(o, colours[given.size % colours.length]);
  findSharedHost();
}

/** Gives all colours back. */
export function forgetOwners() {
  given.clear();
  findSharedHost();
}

export const owners = () => [...given.keys()];
export const rgb = (owner) => given.get(owner) ?? nobody;
export const css = (c, alpha = 1) => `rgba(${c[0]},${c[1]},${c[2]},${alpha})`;
export const mix = (a, b, t) => a.map((v, i) => Math.round(v + (b[i] - v) * t));
export const grey = nobody;

/** A contact, short enough for a label: without a scheme, without the host if all owners are on one, and at
 *  most n characters. */
export function short(contact, n = 18) {
  const s = contact.replace(/^[a-z]+:\/\//, "");
  const own = sharedHost && s.startsWith(sharedHost) ? s.slice(sharedHost.length) : s;
  return own.length <= n ? own : `${own.slice(0, n - 7)}…${own.slice(-6)}`;
}

let sharedHost = ""; // "127.0.0.1" where every owner is another port of it

function findSharedHost() {
  const hosts = new Set([...given.keys()].map((o) => /^([^/]+):\d+$/.exec(o)?.[1] ?? ""));
  sharedHost = given.size > 1 && hosts.size === 1 ? [...hosts][0] : "";
}

/** An H3 index without the ones that fill its unused digits, three bits each: 85283473fffffff is 85283473. */
export function shortTile(id) {
  const resolution = parseInt(id[1], 16);
  return id.length === 15 ? id.slice(0, 15 - Math.floor((3 * (15 - resolution)) / 4)) : id;
}
