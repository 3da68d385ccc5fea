// Other gateways on the same load, each as its own documentation starts it and without a log line for each request where it has a
// setting for that: Portkey's, from its npm package on this Node. LiteLLM and One API have files of their own.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { UPSTREAM_MODEL } from '../load/traffic.ts';
import type { Processes } from '../processes.ts';
import { checkAnswer } from '../round.ts';
import { startLiteLlm } from './litellm.ts';
import { freePort } from './nginx.ts';
import { startOneApi } from './one-api.ts';
import { installed, runTool } from './peer-install.ts';
import { CHAT, NO_HEADERS, type Subject } from './subject.ts';

const PORTKEY = '@portkey-ai/gateway';
export const PORTKEY_VERSION = '1.15.2';
/** With later versions that its package allows, 1.19.5 and 1.19.19 among them, it answers every stream with status 500. */
const OVERRIDES = { '@hono/node-server': '1.13.8' };
export const PEER_START_MS = 5 * 60_000;

const PEERS = { portkey: startPortkey, litellm: startLiteLlm, 'one api': startOneApi };

/** All that can be installed and started here. @param tell is told why the others are left out */
export async function startPeers(
  processes: Processes,
  folder: string,
  upstream: number,
  tell: (text: string) => void,
): Promise<Subject[]> {
  const started: Subject[] = [];
  for (const [name, start] of Object.entries(PEERS)) {
    tell(`Starting ${name}, which is installed the first time.`);
    try {
      const subjects = await start(processes, join(folder, name.replace(' ', '-')), upstream);
      for (const subject of subjects) await checkAnswer(subject);
      started.push(...subjects);
    } catch (error) {
      tell(`bench: ${name} is left out: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return started;
}

async function startPortkey(processes: Processes, _folder: string, upstream: number): Promise<Subject[]> {
  const home = await installed(`portkey-${PORTKEY_VERSION}`, async (folder) => {
    const dependencies = { [PORTKEY]: PORTKEY_VERSION };
    writeFileSync(
      join(folder, 'package.json'),
      JSON.stringify({ private: true, dependencies, overrides: OVERRIDES }),
    );
    const words = ['install', '--no-audit', '--no-fund', '--ignore-scripts'];
    await runTool(processes, 'npm', words, { cwd: folder });
  });
  const port = await freePort();
  const script = join(home, 'node_modules', PORTKEY, 'build', 'start-server.js');
  const started = await processes.start(process.execPath, [script, `--port=${port}`, '--headless'], {
    ready: /Ready for connections|Your AI Gateway is now running/,
    cwd: home,
    deadline: PEER_START_MS,
  });
  return [
    {
      name: 'portkey',
      url: `http://127.0.0.1:${port}${CHAT}`,
      pids: [started.pid],
      headers: {
        ...NO_HEADERS,
        'x-portkey-provider': 'openai',
        'x-portkey-custom-host': `http://127.0.0.1:${upstream}/v1`,
      },
      alias: UPSTREAM_MODEL,
      model: null,
      stop: started.stop,
    },
  ];
}
