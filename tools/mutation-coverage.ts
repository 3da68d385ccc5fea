// Which test files run a place of `src`, and how long each takes, as `mutation-recorder.ts` has recorded.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Mutant } from './mutations.ts';

/** What one test file runs. */
export interface Recorded {
  readonly file: string;
  readonly ms: number;
  /** File of `src` → start and end of each span that ran, in order. */
  readonly places: Readonly<Record<string, readonly number[]>>;
}

export interface Covering {
  readonly file: string;
  readonly ms: number;
}

export class Coverage {
  readonly #recorded: readonly Recorded[];

  constructor(recorded: readonly Recorded[]) {
    this.#recorded = [...recorded].sort((one, other) => one.ms - other.ms);
  }

  /** @param folder the one that the recorder was given */
  static read(folder: string): Coverage {
    return new Coverage(
      readdirSync(folder).map((name): Recorded => JSON.parse(readFileSync(join(folder, name), 'utf8'))),
    );
  }

  /** The test files that were recorded. */
  get files(): string[] {
    return this.#recorded.map(({ file }) => file);
  }

  /** The test files that run what is changed, the quickest first. */
  of({ file, start, end }: Mutant): Covering[] {
    return this.#recorded.filter(({ places }) => touches(places[file] ?? [], start, end));
  }
}

function touches(spans: readonly number[], start: number, end: number): boolean {
  for (let at = 0; at < spans.length; at += 2)
    if ((spans[at] ?? 0) < end && start < (spans[at + 1] ?? 0)) return true;
  return false;
}
