// What Node itself costs: processes that relay on the same Node and do nothing else.
import { fileURLToPath } from 'node:url';
import { ALIAS, UPSTREAM_MODEL } from '../load/traffic.ts';
import type { Processes } from '../processes.ts';
import { CHAT, NO_HEADERS, type Subject } from './subject.ts';

const SCRIPT = fileURLToPath(new URL('./bare-relay.ts', import.meta.url));

/** @param upstream its port */
export function startBare(processes: Processes, upstream: number): Promise<Subject[]> {
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
  return Promise.all([start('sockets', 'Node, sockets'), start('http-proxy-3', 'Node, http-proxy-3')]);
}
