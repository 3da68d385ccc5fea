// What a scenario is: one question about cost, answered by a few tables.
import type { Bench } from '../bench.ts';
import type { Section } from '../section.ts';

export interface Scenario {
  readonly id: string;
  /** Of the sections that it gives, in their order. */
  readonly sections: readonly string[];
  /** Left out unless asked for: it takes minutes, or programs that are not everywhere. */
  readonly isLong?: boolean;
  /** @param known sections of the scenarios before it */
  run(bench: Bench, known: readonly Section[]): Promise<readonly Section[]>;
}
