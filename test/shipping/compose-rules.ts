// What must hold in examples/compose.yaml beyond its schema: who is contained how, what refers to what, what is published.
import type { Config } from '../../src/config/schema/config-schema.ts';
import { at, entries, items, seconds, textAt } from './tree.ts';

/** After drain.timeout, for use that is still to be stored. */
const FLUSH_S = 5;

/** `HOST:PORT:CONTAINER`, the first of which may be left out. */
function published(text: unknown): { host: string; port: number; container: number } {
  const [, host = '', port = '', container = ''] = /^(?:([\d.]+):)?(\d+):(\d+)$/.exec(String(text)) ?? [];
  return { host, port: Number(port), container: Number(container) };
}

/** Names of the services that run the gateway: those that are built here. */
export function gatewaysOf(file: unknown): readonly string[] {
  return entries(file, 'services').flatMap(([name, service]) =>
    at(service, 'build') === undefined ? [] : [name],
  );
}

const sourceOf = (volume: unknown): string => String(volume).split(':')[0] ?? '';
const targetOf = (volume: unknown): string => String(volume).split(':')[1] ?? '';

/** Paths of the host that services mount, as they stand in the file. */
export function mountedPaths(file: unknown): readonly string[] {
  const volumes = entries(file, 'services').flatMap(([, service]) => items(service, 'volumes'));
  return volumes.map(sourceOf).filter((source) => source.startsWith('.'));
}

/** @returns what does not hold, a line each */
export function misfits(file: unknown, config: Config): string[] {
  const findings: string[] = [];
  const expect = (holds: boolean, what: string): void => void (holds || findings.push(what));
  const services = new Map(entries(file, 'services'));
  const ports = new Set<number>();
  const used = { networks: new Set<string>(), volumes: new Set<string>() };

  for (const [name, service] of services) {
    const says = (what: string): string => `${name}: ${what}`;
    expect(at(service, 'read_only') === true, says('may write to its root file system'));
    expect(items(service, 'cap_drop').includes('ALL'), says('keeps capabilities'));
    expect(items(service, 'cap_add').length === 0, says('is given capabilities'));
    expect(items(service, 'security_opt').includes('no-new-privileges:true'), says('may gain privileges'));
    for (const limit of ['cpus', 'memory', 'pids']) {
      expect(at(service, 'deploy', 'resources', 'limits', limit) !== undefined, says(`no limit of ${limit}`));
    }
    // The gateway's is in the image, which is built here.
    const isChecked = at(service, 'healthcheck') !== undefined || at(service, 'build') !== undefined;
    expect(isChecked, says('no healthcheck'));
    const isOwn = at(service, 'build') !== undefined;
    expect(isOwn || /:\d|:v\d/.test(textAt(service, 'image')), says('any version'));
    expect(isOwn || textAt(service, 'image').includes('@sha256:'), says('is not pinned by digest'));
    for (const { host, port, container } of items(service, 'ports').map(published)) {
      expect(host === '127.0.0.1', says('is published to the world'));
      expect(!ports.has(port), says(`takes port ${port} again`));
      ports.add(port);
      const isPublic = at(service, 'build') === undefined || container === config.static.listen.port;
      expect(isPublic, says(`publishes ${container}`));
    }
    for (const network of items(service, 'networks').map(String)) {
      used.networks.add(network);
      expect(at(file, 'networks', network) !== undefined, says(`no network ${network}`));
    }
    for (const volume of items(service, 'volumes')) {
      const source = sourceOf(volume);
      if (source.startsWith('.')) expect(String(volume).endsWith(':ro'), says(`may write to ${source}`));
      else {
        used.volumes.add(source);
        expect(at(file, 'volumes', source) !== undefined, says(`no volume ${source}`));
      }
    }
    for (const [other, { condition }] of entries(service, 'depends_on').map(
      ([each, on]) => [each, { condition: at(on, 'condition') }] as const,
    )) {
      const isHealthy =
        condition !== 'service_healthy' || at(services.get(other), 'healthcheck') !== undefined;
      expect(services.has(other) && isHealthy, says(`waits for ${other} in vain`));
    }
    for (const [variable, value] of entries(service, 'environment')) {
      const isSecret = /SECRET|PASSWORD|KEY|AUTH/.test(variable);
      // `${NAME:?what to do}` and nothing else: no default, nothing that may be empty.
      expect(
        !isSecret || /^\$\{\w+:\?[^}]+\}$/.test(String(value)),
        says(`${variable} has a value or a default`),
      );
    }
  }
  for (const kind of ['networks', 'volumes'] as const) {
    for (const [name] of entries(file, kind)) expect(used[kind].has(name), `nobody uses ${kind} ${name}`);
  }

  // Who keeps what must not be reached from outside.
  for (const name of ['postgres', 'redis']) {
    const networks = items(services.get(name), 'networks').map(String);
    const isInside =
      networks.length > 0 && networks.every((each) => at(file, 'networks', each, 'internal') === true);
    expect(
      isInside && items(services.get(name), 'ports').length === 0,
      `${name}: can be reached from outside`,
    );
  }

  // The gateways.
  const gateways = gatewaysOf(file);
  expect(gateways.length === 2, 'not two gateways');
  const hosts = [config.static.store, config.static.redis].flatMap((each) => JSON.stringify(each) ?? []);
  const { delay, timeout } = config.dynamic.drain;
  for (const gateway of gateways) {
    const service = services.get(gateway);
    const says = (what: string): string => `${gateway}: ${what}`;
    const networks = items(service, 'networks').map(String);
    for (const name of ['postgres', 'redis']) {
      const isShared = items(services.get(name), 'networks').some((each) => networks.includes(String(each)));
      expect(isShared && hosts.some((host) => host.includes(name)), says(`does not reach ${name}`));
      expect(
        at(service, 'depends_on', name, 'condition') === 'service_healthy',
        says(`does not wait for ${name}`),
      );
    }
    const grace = seconds(textAt(service, 'stop_grace_period'));
    expect(grace > delay / 1000 + timeout / 1000 + FLUSH_S, says('is killed before it has drained'));
    const targets = items(service, 'volumes').map(targetOf);
    const words = items(service, 'command').map(String);
    const configFile = words[words.indexOf('--config') + 1] ?? '';
    const isFolder = targets.some((target) => configFile.startsWith(`${target}/`));
    expect(isFolder, says('its configuration is in no mounted folder'));
    expect(targets.includes('/app/data'), says('/app/data is no volume'));
    expect(items(service, 'ports').length > 0, says('is published nowhere'));
  }
  return findings;
}
