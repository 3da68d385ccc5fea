// The upstream of all subjects, which is also asked directly.
import { fileURLToPath } from 'node:url';
import { ALIAS, UPSTREAM_MODEL } from '../load/traffic.ts';
import type { Processes } from '../processes.ts';
import { CHAT, NO_HEADERS, type Subject } from './subject.ts';

export interface Upstream {
  readonly port: number;
  readonly pid: number;
  /** The upstream as a subject. */
  readonly direct: Subject;
}

/** @param files how many connections it must be able to hold, and some more */
export async function startUpstream(processes: Processes, files: number): Promise<Upstream> {
  const script = fileURLToPath(new URL('../load/upstream.ts', import.meta.url));
  const started = await processes.start(process.execPath, [script], { ready: /port (\d+)/, files });
  const port = Number(started.said?.[1]);
  return {
    port,
    pid: started.pid,
    direct: {
      name: 'direct',
      url: `http://127.0.0.1:${port}${CHAT}`,
      pids: [],
      headers: NO_HEADERS,
      alias: ALIAS,
      model: UPSTREAM_MODEL,
      stop: started.stop,
    },
  };
}
