// What the proxy bench compares, each on a loopback port of its own with its files in a temporary folder: the upstream
// asked directly, nginx as a bare reverse proxy, and the gateway with a configuration as an operator would write it.
import { mkdirSync, openSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { stringify } from 'yaml';
import type { Processes } from './processes.ts';
import { ALIAS, UPSTREAM_MODEL } from './traffic.ts';

const PATH = '/v1/chat/completions';
const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url));

/** Where load can be sent. */
export interface Subject {
  readonly name: 'direct' | 'nginx' | 'nginx, access log' | 'gateway';
  readonly url: string;
  /** The process whose CPU time counts; none when the upstream is asked directly. */
  readonly pid: number | undefined;
  /** The model's name in its answers. */
  readonly model: string;
  /** Empties its access log, so that a long run does not fill the disk. */
  readonly emptyLog?: () => void;
}

export async function startUpstream(processes: Processes): Promise<Subject & { readonly port: number }> {
  const script = fileURLToPath(new URL('./upstream.ts', import.meta.url));
  const { said } = await processes.start(process.execPath, [script], { ready: /port (\d+)/ });
  const port = Number(said?.[1]);
  return {
    name: 'direct',
    url: `http://127.0.0.1:${port}${PATH}`,
    pid: undefined,
    model: UPSTREAM_MODEL,
    port,
  };
}

/** One worker with connections kept on both sides; two listeners, of which the second writes an access log. */
export async function startNginx(
  processes: Processes,
  program: string,
  folder: string,
  upstream: number,
): Promise<[Subject, Subject]> {
  const build = await processes.run(program, ['-V'], 10_000).catch(String);
  const plain = await freePort();
  const logged = await freePort();
  mkdirSync(folder);
  writeFileSync(join(folder, 'nginx.conf'), nginxConfig({ plain, logged, upstream, build }));
  // Its sockets are bound by then, and the worker is the process whose time counts.
  const { said } = await processes.start(program, ['-p', folder, '-c', 'nginx.conf', '-e', 'stderr'], {
    ready: /start worker process (\d+)/,
  });
  const pid = Number(said?.[1]);
  const at = (port: number) => ({ url: `http://127.0.0.1:${port}${PATH}`, pid, model: UPSTREAM_MODEL });
  const log = join(folder, 'access.log');
  return [
    { name: 'nginx', ...at(plain) },
    { name: 'nginx, access log', ...at(logged), emptyLog: () => truncateSync(log) },
  ];
}

/** With a key in its store, a model under another name, its access log in a file and metrics on, as always. */
export async function startGateway(
  processes: Processes,
  folder: string,
  upstream: number,
): Promise<Subject & { readonly key: string }> {
  mkdirSync(folder);
  const file = join(folder, 'config.yaml');
  writeFileSync(
    file,
    stringify({
      listen: { port: 0 },
      admin: { port: 0 },
      store: `sqlite:${join(folder, 'tollgate.db')}`,
      upstreams: { vendor: { base_url: `http://127.0.0.1:${upstream}/v1`, api_key: 'sk-not-a-credential' } },
      models: { [ALIAS]: { targets: [{ upstream: 'vendor', model: UPSTREAM_MODEL }] } },
    }),
  );
  const issue = [MAIN, 'keys', 'issue', '--tier', 'Pro', '--config', file];
  const key = (await processes.run(process.execPath, issue, 30_000)).trim();
  const log = join(folder, 'access.log');
  const { pid, said } = await processes.start(process.execPath, [MAIN, 'serve', '--config', file], {
    stdout: openSync(log, 'a'),
    ready: /listening on (http:\S+)/,
  });
  const emptyLog = () => truncateSync(log);
  return { name: 'gateway', url: `${said?.[1]}${PATH}`, pid, model: ALIAS, emptyLog, key };
}

interface NginxPorts {
  readonly plain: number;
  readonly logged: number;
  readonly upstream: number;
  /** What `nginx -V` says. */
  readonly build: string;
}

function nginxConfig({ plain, logged, upstream, build }: NginxPorts): string {
  const isRoot = process.getuid?.() === 0;
  // Modules that are built in make their folders at start, wherever the distribution put them, used or not.
  const folders = ['fastcgi', 'uwsgi', 'scgi'].filter(
    (name) => !build.includes(`--without-http_${name}_module`),
  );
  const server = (port: number, log: string) => `
  server {
    listen 127.0.0.1:${port} backlog=1024;
    access_log ${log};
    location / {
      proxy_pass http://upstream;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }
  }`;
  return `# 1,000 requests a connection, the default of nginx, are also what the gateway allows, on both sides.
daemon off;
worker_processes 1;
${isRoot ? `user ${userInfo().username};` : ''}
pid nginx.pid;
error_log stderr notice;
events { worker_connections 1024; }
http {
  client_body_temp_path temp-body;
  proxy_temp_path temp-proxy;
  ${folders.map((name) => `${name}_temp_path temp-${name};`).join('\n  ')}
  upstream upstream {
    server 127.0.0.1:${upstream};
    keepalive 128;
  }${server(plain, 'off')}${server(logged, 'access.log')}
}
`;
}

/** A loopback port that is free now; nginx cannot choose one itself. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === 'string') throw new Error('there is no free port');
  return address.port;
}
