// What requests of the size of a conversation cost: text, definitions of tools, images in base64, deep JSON.
import { alternate, type Bench } from '../bench.ts';
import { type Row, rowsOf } from '../figures.ts';
import { SHAPES } from '../load/traffic.ts';
import { requestRound } from '../round.ts';
import type { SubjectName } from '../subjects/subject.ts';
import type { Scenario } from './scenario.ts';

const KIB = 2 ** 10;
const SIZES = [4, 16, 64, 256];
/** Bodies of both are read in their own way. */
const WARM_UP_SIZES = [16, 256];
const CONNECTIONS = 16;
/** The row that a target looks at. */
const WORST = 'worst of all';
const PROXY: SubjectName = 'Node, http-proxy-3';

export const middleBodies: Scenario = {
  id: 'middle-bodies',
  sections: ['middle-bodies'],
  async run(bench) {
    await warmUp(bench);
    const rows: Row[] = [];
    for (const kib of SIZES) {
      for (const shape of SHAPES) rows.push(await rowFor(bench, kib, shape));
    }
    const worst = rows.toSorted((a, b) => ratioOf(b) - ratioOf(a))[0];
    const { of_nginx } = worst?.figures ?? {};
    return [
      {
        id: 'middle-bodies',
        title: 'Bodies of conversations',
        note:
          `JSON answers over ${CONNECTIONS} connections to requests of these sizes: messages of a conversation (text), definitions of tools, an image in base64, ` +
          'and JSON of seven levels (deep). "Of nginx\'s" and "of http-proxy-3\'s": CPU time of the gateway divided by theirs.',
        columns: [
          { field: 'nginx_us', heading: 'nginx CPU µs/request', digits: 1 },
          { field: 'proxy_us', heading: 'http-proxy-3 µs', digits: 1 },
          { field: 'gateway_us', heading: 'gateway µs', digits: 1 },
          { field: 'of_nginx', heading: "of nginx's", digits: 2, unit: 'x' },
          { field: 'of_proxy', heading: "of http-proxy-3's", digits: 2, unit: 'x' },
        ],
        rows: of_nginx === undefined ? rows : [...rows, { name: WORST, figures: { of_nginx } }],
      },
    ];
  },
};

function measured({ nginx, gateway, bare }: Bench) {
  return [nginx, gateway, ...bare.filter(({ name }) => name === PROXY)];
}

function asked(bench: Bench, kib: number, shape: (typeof SHAPES)[number]) {
  // A third of a round is some hundred bodies of the largest size.
  const ms = Math.round(bench.seconds * 333);
  const common = { kind: 'closed', connections: CONNECTIONS, requests: 50, pace: null } as const;
  return { ...common, ms, shape, bytes: kib * KIB };
}

/** The rows that come first are otherwise those of programs that are not compiled yet. */
async function warmUp(bench: Bench): Promise<void> {
  for (const kib of WARM_UP_SIZES) {
    for (const shape of SHAPES) {
      for (const subject of measured(bench))
        await requestRound(bench.processes, subject, asked(bench, kib, shape));
    }
  }
}

async function rowFor(bench: Bench, kib: number, shape: (typeof SHAPES)[number]): Promise<Row> {
  const { processes, rounds } = bench;
  const name = `${kib} KiB, ${shape}`;
  const results = await alternate(name, measured(bench), rounds, (subject) =>
    requestRound(processes, subject, asked(bench, kib, shape)),
  );
  const all = new Map(
    rowsOf(results, { gatewayIs: { ratio: 'cpu_us' } }).map((row) => [row.name, row.figures]),
  );
  const figures = {
    nginx_us: all.get('nginx')?.['cpu_us'],
    proxy_us: all.get(PROXY)?.['cpu_us'],
    gateway_us: all.get('gateway')?.['cpu_us'],
    of_nginx: all.get('nginx')?.['ratio'],
    of_proxy: all.get(PROXY)?.['ratio'],
  };
  const known = Object.entries(figures).flatMap(([field, figure]) =>
    figure === undefined ? [] : [[field, figure] as const],
  );
  return { name, figures: Object.fromEntries(known) };
}

function ratioOf({ figures }: Row): number {
  return figures['of_nginx']?.median ?? 0;
}
