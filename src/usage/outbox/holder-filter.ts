// Which holders are in a segment whose rows are on the disk alone: 4 bytes for each, so that a report reads only the files that may
// have something of its holder.
import type { UsageRow } from '../../store/usage-record.ts';

export class HolderFilter {
  readonly #hashes: Uint32Array;

  constructor(rows: Iterable<UsageRow>) {
    const hashes = new Set<number>();
    for (const { holderId } of rows) hashes.add(hashOf(holderId));
    this.#hashes = Uint32Array.from(hashes);
  }

  /** False when there is certainly no row of this holder. */
  mayHave(holderId: string): boolean {
    return this.#hashes.includes(hashOf(holderId));
  }
}

/** FNV-1a, 32 bits. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  return hash >>> 0;
}
