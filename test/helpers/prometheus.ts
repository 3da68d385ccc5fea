// A real Prometheus on recorded pages of /metrics: `promtool` makes blocks of them, and the server answers PromQL about them. It scrapes nothing.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { z } from 'zod';
import { closedPort } from './closed-port.ts';
import { installPackage, onPath } from './debian-packages.ts';
import { PATIENCE, tempDir, until, within } from './wait.ts';

const run = promisify(execFile);

/** A page of /metrics, as if it had been scraped then. */
export interface RecordedPage {
  readonly instance: string;
  /** Seconds since 1970. */
  readonly at: number;
  readonly text: string;
}

const samples = z.array(z.tuple([z.number(), z.string()]));
const result = z.array(
  z.object({
    metric: z.record(z.string(), z.string()),
    values: samples.optional(),
    value: samples.element.optional(),
  }),
);
const answer = z.object({ status: z.string(), error: z.string().optional(), data: z.unknown() });

/** Installs Debian's package where the programs are missing. */
export async function needPrometheus(): Promise<void> {
  const known = await Promise.all([onPath('promtool'), onPath('prometheus')]);
  if (known.includes(undefined))
    await installPackage('prometheus', 'command -v promtool && command -v prometheus');
}

export class Prometheus implements AsyncDisposable {
  readonly #url: string;
  readonly #range: Readonly<Record<string, string>>;
  readonly #stop: () => Promise<void>;

  private constructor(url: string, range: Readonly<Record<string, string>>, stop: () => Promise<void>) {
    this.#url = url;
    this.#range = range;
    this.#stop = stop;
  }

  /** @param pages in order of time. @param step between two points of an answer, in seconds */
  static async start(pages: readonly RecordedPage[], step: number): Promise<Prometheus> {
    await needPrometheus();
    const folder = await tempDir();
    const [recorded, config, data] = ['pages.txt', 'prometheus.yaml', 'data'].map((name) =>
      folder.file(name),
    );
    if (recorded === undefined || config === undefined || data === undefined) throw new Error('no folder');
    await writeFile(recorded, `${pages.flatMap(linesOf).join('\n')}\n# EOF\n`);
    await writeFile(config, '{}\n');
    await run('promtool', ['tsdb', 'create-blocks-from', 'openmetrics', recorded, data], {
      timeout: 4 * PATIENCE,
    });
    const address = `127.0.0.1:${await closedPort()}`;
    const words = [
      `--config.file=${config}`,
      `--storage.tsdb.path=${data}`,
      `--web.listen-address=${address}`,
    ];
    const server = spawn('prometheus', [...words, '--log.level=warn'], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let said = '';
    server.stderr.on('data', (bytes: Buffer) => {
      said += bytes.toString();
    });
    const stop = async () => {
      const exit = once(server, 'exit');
      if (server.exitCode === null && server.kill('SIGKILL')) await within(exit, 'the end of Prometheus');
      await folder.remove();
    };
    try {
      await until(
        async () => (await fetch(`http://${address}/-/ready`)).ok || server.exitCode !== null,
        'Prometheus',
      );
    } catch (error) {
      await stop();
      throw new Error(`Prometheus does not start: ${said}`, { cause: error });
    }
    const [start, end] = [pages[0]?.at, pages.at(-1)?.at].map(String);
    return new Prometheus(
      `http://${address}/api/v1`,
      { start: `${start}`, end: `${end}`, step: `${step}` },
      stop,
    );
  }

  /** The series of an expression over the whole time, by their labels, each with its finite values. */
  async query(
    expression: string,
  ): Promise<{ readonly labels: Readonly<Record<string, string>>; readonly values: readonly number[] }[]> {
    const { data } = await this.#ask('query_range', { query: expression, ...this.#range });
    return z
      .object({ result })
      .parse(data)
      .result.map(({ metric, values = [] }) => ({
        labels: metric,
        values: values.map(([, value]) => Number(value)).filter(Number.isFinite),
      }));
  }

  /** As `label_values` of Grafana. */
  async labelValues(series: string, label: string): Promise<readonly string[]> {
    const { data } = await this.#ask(`label/${label}/values`, { 'match[]': series, ...this.#range });
    return z.array(z.string()).parse(data);
  }

  /** @throws Error with what Prometheus says of the expression */
  async #ask(path: string, query: Readonly<Record<string, string>>) {
    const response = await fetch(`${this.#url}/${path}?${new URLSearchParams(query)}`);
    const said = answer.parse(await response.json());
    if (said.status !== 'success') throw new Error(`${said.error}: ${JSON.stringify(query)}`);
    return said;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#stop();
  }
}

/** In the OpenMetrics format, with the labels that a scrape adds. */
function linesOf({ instance, at, text }: RecordedPage): string[] {
  const own = `instance="${instance}",job="tollgate"`;
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return [`up{${own}} 1 ${at}`, ...lines.map((line) => `${withLabels(line, own)} ${at}`)];
}

function withLabels(line: string, own: string): string {
  const [, name = '', labels, value = ''] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
  return `${name}{${labels === undefined ? '' : `${labels.replace(/,$/, '')},`}${own}} ${value}`;
}
