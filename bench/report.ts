// The results of a run as text: for a terminal, and as the page that is kept. It measures nothing.
import { z } from 'zod';
import type { Circumstances } from './machine.ts';
import { figureIn, type Section, tableOf } from './section.ts';
import { targetsTable } from './targets.ts';

export interface Report extends Circumstances {
  /** The command that repeats the run. */
  readonly command: string;
  readonly rounds: number;
  readonly seconds: number;
  readonly sections: readonly Section[];
}

const keptReport = z.object({
  command: z.string(),
  machine: z.string(),
  versions: z.string(),
  commit: z.string(),
  date: z.string(),
  rounds: z.number(),
  seconds: z.number(),
  sections: z.array(
    z.object({
      id: z.string(),
      title: z.string(),
      note: z.string(),
      columns: z.array(
        z.object({
          field: z.string(),
          heading: z.string(),
          digits: z.number(),
          unit: z.string().default(''),
        }),
      ),
      rows: z.array(
        z.object({
          name: z.string(),
          figures: z.record(z.string(), z.object({ median: z.number(), min: z.number(), max: z.number() })),
        }),
      ),
    }),
  ),
});

/**
 * A run of some scenarios, with what earlier runs measured of the others, where both are alike in all that matters.
 * @param earlier as it was read from a file
 * @param order ids of sections
 */
export function merge(earlier: unknown, measured: Report, order: readonly string[]): Report {
  const { success, data } = keptReport.safeParse(earlier);
  if (!success) return measured;
  const isAlike = (['machine', 'versions', 'commit', 'rounds', 'seconds'] as const).every(
    (field) => data[field] === measured[field],
  );
  if (!isAlike) return measured;
  const fresh = new Set(measured.sections.map(({ id }) => id));
  const sections = [...data.sections.filter(({ id }) => !fresh.has(id)), ...measured.sections];
  return {
    ...measured,
    command: `${data.command}; ${measured.command}`,
    sections: sections.toSorted((a, b) => order.indexOf(a.id) - order.indexOf(b.id)),
  };
}

/** All tables, and the targets below them. */
export function tables({ sections }: Report): string {
  const parts = sections.map((section) => tableOf(section) || `${section.title}: ${section.note}\n`);
  return [...parts, targetsTable((at) => figureIn(sections, ...at))].join('\n');
}

export function page(report: Report): string {
  const { command, machine, versions, commit, date, rounds, seconds, sections } = report;
  const parts = sections.map((section) =>
    `## ${section.title}\n\n${section.note}\n\n${tableOf(section)}`.trimEnd(),
  );
  return `# What the gateway costs

Written by \`${command}\`. Figures of different machines do not compare; ratios mostly do.

- Machine: ${machine}
- Versions: ${versions}
- Commit: ${commit}
- Date: ${date}

## Targets

${targetsTable((at) => figureIn(sections, ...at))}
By medians; the spread is in brackets. Targets of other benches are in docs/performance.md.

## Method

Medians of ${rounds} rounds of about ${seconds} s (of three where no target needs more), with the least and the greatest in brackets. In every round all rows of a table have
their turn, every second round backwards, so that a slow moment of the machine hits all. Ratios ("gateway uses": CPU time of the
gateway divided by that of the row; "gateway does": the same of throughput) and differences ("added": over the upstream asked
directly) are taken within a round.

**direct** is the upstream: prepared bytes over bare sockets, in a process of its own. **nginx** is one worker with kept connections
on both sides, which buffers, checks and writes nothing; a second row also writes an access log. **gateway** is one process with
everything on: the key is checked, every kind of limit is counted, the model is rewritten both ways, use is priced and goes to the
ledger and from there into SQLite, metrics are counted, and the access log goes to a file. **Node** is what Node
itself costs: **sockets** passes bytes on between two sockets and does not know what they are, **server** is \`node:http\` alone, which
answers by itself, and **http-proxy-3** is that package with kept connections and nothing around it.
Other gateways have a table of their own.
Before anything is measured the gateway has answered 200,000 requests and 10,000 streams, and the others have been asked for about as long:
compilers have settled by then. Requests have the header block, body and length of key that the official SDK sends, and answers the headers
that api.openai.com sends. Load comes from a process of its own, over bare sockets. Every answer is checked: its status and length, and of the streams of all
but other gateways every byte. CPU time is user and system time of all threads of the proxy, from before a round to after it, as
the kernel counts it. Everything is on loopback and shares the processors; nothing is pinned, unless a table says so.

${parts.join('\n\n')}
`;
}
