// nginx as a bare reverse proxy: one worker with connections kept on both sides, nothing buffered, nothing checked. The
// program is the system's; where packages may be installed, Debian's is.
import { mkdirSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { installCommand, installPackage } from '../../test/helpers/debian-packages.ts';
import { childrenOf } from '../cpu.ts';
import { ALIAS, UPSTREAM_MODEL } from '../load/traffic.ts';
import { findProgram, type Processes } from '../processes.ts';
import { CHAT, NO_HEADERS, type Subject } from './subject.ts';

const PACKAGE = 'nginx-light';
const MISSING = 'the bench needs nginx (Debian: apt-get install nginx-light)';
/** A connection to the client and one to the upstream for each stream, and some more. */
const FILES = 32_768;

/** The path of nginx, which is installed where it is missing and that is possible. @throws Error saying what to install */
export async function nginxProgram(): Promise<string> {
  const found = findProgram('nginx');
  if (found !== undefined) return found;
  if (process.getuid?.() !== 0 || findProgram('apt-get') === undefined) throw new Error(MISSING);
  process.stderr.write(`no nginx on this machine; running: ${installCommand(PACKAGE)}\n`);
  await installPackage(PACKAGE, 'command -v nginx').catch((cause: unknown) => {
    throw new Error(`${MISSING}; installing it has failed`, { cause });
  });
  const installed = findProgram('nginx');
  if (installed === undefined) throw new Error(`${MISSING}; the package did not bring it`);
  return installed;
}

export interface NginxOptions {
  readonly program: string;
  readonly folder: string;
  /** Ports of the upstreams for small and for large bodies. */
  readonly upstream: number;
  readonly largeUpstream: number;
}

/** Two subjects of one worker; the second writes an access log. */
export async function startNginx(processes: Processes, options: NginxOptions): Promise<[Subject, Subject]> {
  const { program, folder } = options;
  const build = await processes.run(program, ['-V'], 10_000).catch(String);
  const plain = await freePort();
  const logged = await freePort();
  const large = await freePort();
  mkdirSync(folder);
  writeFileSync(join(folder, 'nginx.conf'), configText(options, { plain, logged, large }, build));
  // Its sockets are bound by then, and the worker is the process whose time counts.
  const started = await processes.start(program, ['-p', folder, '-c', 'nginx.conf', '-e', 'stderr'], {
    ready: /start worker process (\d+)/,
    files: FILES,
  });
  const worker = Number(started.said?.[1]);
  if (childrenOf(started.pid).join() !== `${worker}`) throw new Error('nginx has not just one worker');
  const at = (port: number) => ({
    url: `http://127.0.0.1:${port}${CHAT}`,
    pids: [worker],
    headers: NO_HEADERS,
    alias: ALIAS,
    model: UPSTREAM_MODEL,
    large: { url: `http://127.0.0.1:${large}${CHAT}`, alias: ALIAS },
    stop: started.stop,
  });
  const log = join(folder, 'access.log');
  return [
    { name: 'nginx', ...at(plain) },
    { name: 'nginx, access log', ...at(logged), emptyLog: () => truncateSync(log) },
  ];
}

interface Ports {
  readonly plain: number;
  readonly logged: number;
  readonly large: number;
}

function configText({ upstream, largeUpstream }: NginxOptions, ports: Ports, build: string): string {
  const isRoot = process.getuid?.() === 0;
  // Modules that are built in make their folders at start, wherever the distribution put them, used or not.
  const folders = ['fastcgi', 'uwsgi', 'scgi'].filter(
    (name) => !build.includes(`--without-http_${name}_module`),
  );
  const server = (port: number, to: string, log: string) => `
  server {
    listen 127.0.0.1:${port} backlog=4096;
    access_log ${log};
    location / {
      proxy_pass http://${to};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_request_buffering off;
    }
  }`;
  const pool = (name: string, port: number) => `
  upstream ${name} {
    server 127.0.0.1:${port};
    keepalive 128;
  }`;
  return `# 1,000 requests a connection, the default of nginx, are also what the gateway allows, on both sides.
daemon off;
worker_processes 1;
${isRoot ? `user ${userInfo().username};` : ''}
pid nginx.pid;
error_log stderr notice;
events { worker_connections ${FILES}; }
http {
  client_max_body_size 0;
  client_body_temp_path temp-body;
  proxy_temp_path temp-proxy;
  ${folders.map((name) => `${name}_temp_path temp-${name};`).join('\n  ')}${pool('upstream', upstream)}${pool('large', largeUpstream)}${server(ports.plain, 'upstream', 'off')}${server(ports.logged, 'upstream', 'access.log')}${server(ports.large, 'large', 'off')}
}
`;
}

/** A loopback port that is free now, for who cannot choose one itself. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === 'string') throw new Error('there is no free port');
  return address.port;
}
