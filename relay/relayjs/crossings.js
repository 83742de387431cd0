// The views of several tiles, put together: an entity that crosses from one to the other is drawn once in every frame,
// whatever the order in which the tiles' events come. docs/wire.md has the rules.
//
//   const client = new Client(url, [], calls);
//   const crossings = new Crossings({ join: (tile) => client.join(tile), quit: (tile) => client.leave(tile) });
//   crossings.follow("ann");
//   crossings.crossed(home); // and whenever an answer of the gateway has crossed.to
//
// The game numbers the stays of an entity: its hop is 0 where it is born, and a departure's payload carries the next. An
// entity that is born again has another name.

const longestFlight = 30000; // ms for which an entity is drawn in flight; a player always is
const mostHidden = 4096; // entities that are remembered although they are not drawn: nothing late brings them back

export class Crossings {
  #player = "";
  #entities = new Map(); // name → {tile, to, hop, value, left, unseen, ended}
  #watched = new Map(); // tile → {player: it is there, or goes there; other: another reason; part: for that, some areas}
  #hidden = []; // names, the oldest first, some of them twice

  /**
   * join and quit begin and end the watching of a whole tile for the player. Of a tile that is also watched in part, quit
   * goes back to that part.
   */
  constructor({ join, quit } = {}) {
    this.join = join;
    this.quit = quit;
  }

  /** Makes an entity the player's: it is drawn in flight wherever it goes, and the tiles where it is are watched. */
  follow(entity) { this.#player = entity; }

  /**
   * The page watches a tile, other than as the player's: the whole of it or, with areas, a part, as the rim of a
   * neighbour. It is joined when the player goes there, since it may arrive out of sight. Of what goes out of sight inside
   * a tile, the page takes care by restore.
   */
  watch(tile, ...areas) {
    this.#watched.set(tile, { player: !!this.#watched.get(tile)?.player, other: true, part: areas.length > 0 });
  }

  /** The page watches a tile no more: nothing that is there, or flies there, is drawn. */
  unwatch(tile) {
    this.#watched.delete(tile);
    for (const [name, s] of this.#entities) {
      if (this.#isPlayer(name)) continue;
      if (s.to === tile) this.#hide(name, s, true);
      else if (!s.to && s.tile === tile) this.#hide(name, s, false);
    }
  }

  #isPlayer(entity) { return entity !== "" && entity === this.#player; }

  /** Joins the tile that the player goes to, as an answer of the gateway says, and the one where it begins. */
  crossed(to) {
    const w = this.#watched.get(to);
    if (w?.player || w && !w.part) return;
    this.#watched.set(to, { ...w, player: true });
    this.join?.(to);
  }

  /**
   * Begins a stay of an entity: it was born in the tile, it has arrived there, or it came back. Reports whether it is
   * drawn there now. If it is the player, the tiles that were joined for it before are left.
   */
  enter(tile, entity, hop, value) {
    if (!this.#watched.has(tile)) return false;
    const s = this.#entities.get(entity);
    const again = s && s.hop === hop && s.tile === tile && !s.to && !s.ended; // in a Sync
    if (s && s.hop >= hop && !again) return false;
    this.#entities.set(entity, { tile, to: undefined, hop, value, left: 0, unseen: false, ended: false });
    if (!this.#isPlayer(entity)) return true;
    for (const [other, w] of [...this.#watched]) {
      if (!w.player || other === tile) continue;
      if (w.other) w.player = false;
      else this.unwatch(other);
      if (w.part || !w.other) this.quit?.(other);
    }
    return true;
  }

  /**
   * Ends a stay: the entity has departed for another tile. It is drawn in flight if the page watches that one, and
   * otherwise no more. If it is the player, the other tile is joined.
   */
  leave(tile, entity, hop, to) {
    const s = this.#entities.get(entity);
    if (!s || s.hop !== hop || s.tile !== tile || s.to || s.ended) return;
    s.to = to;
    s.left = performance.now();
    if (this.#isPlayer(entity)) this.crossed(to);
    else if (!this.#watched.has(to)) this.#hide(entity, s, true);
  }

  /** Ends an entity: in that stay it has left the world. */
  end(entity, hop) {
    const s = this.#entities.get(entity);
    if (!s || s.hop > hop) return;
    s.hop = hop;
    this.#hide(entity, s, true);
  }

  /** A tile's view starts over, before enter is called for each of its entities: what else was there is not drawn. */
  restore(tile, has) {
    for (const [name, s] of this.#entities) {
      if (s.tile === tile && !s.to && !this.#isPlayer(name) && !has(name)) this.#hide(name, s, false);
    }
  }

  #hide(entity, s, ended) {
    if (!s.unseen) this.#hidden.push(entity);
    Object.assign(s, { value: undefined, unseen: true, ended: s.ended || ended });
    while (this.#hidden.length > mostHidden) {
      const old = this.#hidden.shift();
      if (this.#entities.get(old)?.unseen) this.#entities.delete(old);
    }
  }

  /** How an entity is drawn, as {tile, to, hop, value}, with to while it is in flight; undefined if it is not. */
  get(entity) {
    const s = this.#entities.get(entity);
    return s && this.#drawn(entity, s) ? s : undefined;
  }

  /** All entities that are drawn, as [name, {tile, to, hop, value}]. */
  *all() {
    for (const [name, s] of this.#entities) if (this.#drawn(name, s)) yield [name, s];
  }

  #drawn(entity, s) {
    if (s.to && !this.#isPlayer(entity) && performance.now() - s.left > longestFlight) this.#hide(entity, s, true);
    return !s.unseen;
  }
}
