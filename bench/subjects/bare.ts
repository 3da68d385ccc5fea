// What Node itself costs: processes that relay, or answer, on the same Node and do nothing else.
import { fileURLToPath } from 'node:url';
import { ALIAS, UPSTREAM_MODEL } from '../load/traffic.ts';
import type { Processes } from '../processes.ts';
import { CHAT, NO_HEADERS, type Subject, type SubjectName } from './subject.ts';

const SCRIPT = fileURLToPath(new URL('./bare-relay.ts', import.meta.url));

const KINDS = [
  ['sockets', 'Node, sockets'],
  ['server', 'Node, server'],
  ['http-proxy-3', 'Node, http-proxy-3'],
] as const;

export const BARE_NAMES: readonly SubjectName[] = KINDS.map(([, name]) => name);

/**
 * @param upstream its port
 * @param names those that are started, out of `BARE_NAMES`
 */
export function startBare(
  processes: Processes,
  upstream: number,
  names: readonly SubjectName[] = BARE_NAMES,
): Promise<Subject[]> {
  const start = async (kind: string, name: Subject['name']): Promise<Subject> => {
    const started = await processes.start(process.execPath, [SCRIPT, kind, `${upstream}`], {
      ready: /port (\d+)/,
    });
    return {
      name,
      url: `http://127.0.0.1:${started.said?.[1]}${CHAT}`,
      pids: [started.pid],
      headers: NO_HEADERS,
      alias: ALIAS,
      model: UPSTREAM_MODEL,
      stop: started.stop,
    };
  };
  const wanted = KINDS.filter(([, name]) => names.includes(name));
  return Promise.all(wanted.map(([kind, name]) => start(kind, name)));
}
