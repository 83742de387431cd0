/** How an entity is drawn; to is the tile for which it is in flight. */
export interface Sighting<V> {
  readonly tile: string;
  readonly to?: string;
  readonly hop: number;
  readonly value: V;
}

/** The views of several tiles, put together: an entity that crosses is drawn once in every frame. */
export declare class Crossings<V = unknown> {
  constructor(calls?: { join?(tile: string): void; quit?(tile: string): void });
  follow(entity: string): void;
  watch(tile: string, ...areas: number[]): void;
  unwatch(tile: string): void;
  crossed(to: string): void;
  enter(tile: string, entity: string, hop: number, value: V): boolean;
  leave(tile: string, entity: string, hop: number, to: string): void;
  end(entity: string, hop: number): void;
  restore(tile: string, has: (entity: string) => boolean): void;
  get(entity: string): Sighting<V> | undefined;
  all(): Generator<[entity: string, seen: Sighting<V>], void>;
}
