// Cross-field checks: references to other names, mutually exclusive fields, unreachable models. It reads the tree instead of the
// parsed output, so that an invalid field hides no other fault.
import { readStore } from '../schema/addresses.ts';
import { TIERS } from '../schema/config-schema.ts';
import { ENDPOINTS, ENDPOINTS_OF, type Protocol } from '../schema/endpoint-names.ts';
import { readDecimal, readInteger } from '../schema/units.ts';
import { origin, suggestion } from '../source/schema-issues.ts';
import {
  findNode,
  isGiven,
  isLiteral,
  nodeText,
  type ReportFault,
  type YamlMapping,
  type YamlNode,
  type YamlPair,
  type YamlPosition,
} from '../source/yaml-tree.ts';
import { checkBilling } from './billing-check.ts';
import { checkBudgets } from './budget-check.ts';
import { checkListenerTls } from './listener-tls-check.ts';
import { checkOutbound } from './outbound-check.ts';
import { checkPrices } from './price-check.ts';
import { checkTrustedProxies } from './proxies-check.ts';
import { checkTimeouts } from './timeouts-check.ts';
import { checkOldMembers, checkUpstream, checkUse, entriesOf, itemsOf } from './upstream-check.ts';
import { checkValues } from './value-check.ts';

interface Findings {
  readonly faults: readonly YamlPosition[];
  readonly warnings: readonly YamlPosition[];
}

function checkTargets(
  name: string,
  model: YamlNode,
  upstreams: ReadonlyMap<string, YamlPair>,
  fault: ReportFault,
  warn: ReportFault,
): void {
  const targets = itemsOf(model, 'targets');
  /** By priority: total weight of the group, and the position of its first target. */
  const groups = new Map<number, { weight: number; at: number; index: number }>();
  const protocols = targets.map((target) => protocolOf(upstreams.get(nodeText(target, 'upstream') ?? '')));
  const protocol = protocols.find((each) => each !== undefined) ?? 'openai';
  itemsOf(model, 'endpoints').forEach((item, index) => {
    const listed = ENDPOINTS.find((each) => each === nodeText(item));
    if (listed === undefined || ENDPOINTS_OF[protocol].includes(listed)) return;
    const others = ENDPOINTS_OF[protocol].join(', ');
    const message = `needs upstreams of another \`protocol\`; those with \`${protocol}\` have: ${others}`;
    fault(item.span.start, ['models', name, 'endpoints', index], message);
  });
  targets.forEach((target, index) => {
    const path = ['models', name, 'targets', index];
    const upstream = findNode(target, ['upstream'])?.node;
    const wanted = nodeText(upstream);
    if (upstream?.kind === 'leaf' && wanted !== undefined && wanted !== '' && !upstreams.has(wanted)) {
      const literal = isLiteral(upstream);
      // Only a plausible name is quoted; other text may be a misplaced credential.
      const what =
        literal && /^[\w./-]{1,64}$/.test(wanted)
          ? `there is no upstream \`${wanted}\``
          : 'there is no upstream of this name';
      const near = literal ? suggestion(wanted, upstreams.keys()) : '';
      fault(upstream.span.start, [...path, 'upstream'], what + near + origin(upstream));
    }
    if (upstream !== undefined && (protocols[index] ?? protocol) !== protocol)
      fault(
        upstream.span.start,
        [...path, 'upstream'],
        'speaks another `protocol` than the first target; all targets of a model speak the same',
      );
    const there = findNode(target, ['model'])?.node;
    const stars = nodeText(there)?.split('*').length ?? 1;
    if (there !== undefined && stars > 2) {
      fault(there.span.start, [...path, 'model'], 'has more than one `*`');
    } else if (there !== undefined && stars === 2 && !name.includes('*')) {
      fault(there.span.start, [...path, 'model'], 'has a `*`, but the name of this model has none');
    }
    const priority = readInteger(nodeText(target, 'priority') ?? '1');
    if (!priority.ok || target.kind !== 'branch') return;
    const at = (findNode(target, ['weight'])?.node ?? target).span.start;
    const group = groups.get(priority.value) ?? { weight: 0, at, index };
    groups.set(priority.value, { ...group, weight: group.weight + weightOf(target) });
  });
  const isUsed = (target: YamlNode) =>
    isEnabled(target) &&
    isEnabled(upstreams.get(nodeText(target, 'upstream') ?? '')?.value) &&
    weightOf(target) !== 0;
  const [first] = targets;
  if (first === undefined) return;
  if (!targets.some(isUsed)) {
    warn(
      first.span.start,
      ['models', name, 'targets'],
      'no target is in service (`enabled`, `weight`): requests for this model get a 503 upstream_out_of_service',
    );
    return;
  }
  for (const [priority, { weight, at, index }] of groups) {
    const path = ['models', name, 'targets', index, 'weight'];
    if (weight === 0)
      warn(at, path, `no target of priority ${priority} has a weight above 0: they get no requests`);
  }
}

/** The API that an upstream speaks; undefined for an unknown upstream. */
function protocolOf(upstream: YamlPair | undefined): Protocol | undefined {
  return upstream && (nodeText(upstream.value, 'protocol') === 'anthropic' ? 'anthropic' : 'openai');
}

/** An invalid weight counts as 1: it has a fault already. */
function weightOf(target: YamlNode): number {
  const weight = readDecimal(nodeText(target, 'weight') ?? '1');
  return weight.ok ? Math.abs(weight.value) : 1;
}

/** Whether an upstream or a target is not taken out of service. */
function isEnabled(entry: YamlNode | undefined): boolean {
  return nodeText(entry, 'enabled') !== 'false';
}

function checkModelTiers(
  name: string,
  { key, value }: YamlPair,
  configured: readonly string[] | undefined,
  fault: ReportFault,
): void {
  const listed = findNode(value, ['tiers']);
  if (listed?.node.kind !== 'list') return;
  const path = ['models', name, 'tiers'];
  const { items } = listed.node;
  if (items.length === 0) {
    fault(
      listed.node.span.start,
      path,
      'is empty, so that no key can reach this model; leave it out for all tiers',
    );
    return;
  }
  const seen = new Set<string>();
  let readable = true;
  items.forEach((item, index) => {
    const tier = nodeText(item);
    if (tier === undefined || !TIERS.some((known) => known === tier)) readable = false;
    else if (seen.has(tier)) fault(item.span.start, [...path, index], 'is listed twice');
    if (tier !== undefined) seen.add(tier);
  });
  if (readable && configured !== undefined && !configured.some((tier) => seen.has(tier))) {
    fault(
      (listed.key ?? key).start,
      path,
      `lists no tier that is on offer, so that no key can reach this model; \`tiers\` has ${configured.map((tier) => `\`${tier}\``).join(', ')}`,
    );
  }
}

/** @returns the offered tiers; undefined when the section is invalid */
function checkTiers(tree: YamlMapping, fault: ReportFault): readonly string[] | undefined {
  const section = tree.entries.get('tiers');
  if (section === undefined || !isGiven(section.value)) return TIERS;
  if (section.value.kind !== 'branch') return undefined;
  const { entries } = section.value;
  if (entries.size === 0) {
    fault(section.key.start, ['tiers'], 'offers no tier; leave it out to offer all three');
    return undefined;
  }
  for (const [tier, { key, value }] of entries) {
    if (!TIERS.some((known) => known === tier)) continue;
    if (!isGiven(value)) {
      fault(key.start, ['tiers', tier], 'is empty; write `{}` for a tier without limits, or leave it out');
    }
    const price = findNode(value, ['stripe_price'])?.node;
    if (isGiven(price) && !isGiven(tree.entries.get('billing')?.value)) {
      fault(price.span.start, ['tiers', tier, 'stripe_price'], 'needs the section `billing`');
    }
  }
  const known = [...entries.keys()].filter((tier) => TIERS.some((name) => name === tier));
  return known.length === entries.size ? known : undefined;
}

function checkPassthrough(
  tree: YamlMapping,
  upstreams: ReadonlyMap<string, YamlPair>,
  fault: ReportFault,
  warn: ReportFault,
): void {
  const there = findNode(tree, ['passthrough', 'upstream'])?.node;
  const wanted = nodeText(there);
  if (there?.kind !== 'leaf' || wanted === undefined || wanted === '') return;
  const upstream = upstreams.get(wanted);
  const path = ['passthrough', 'upstream'];
  if (upstream === undefined) {
    const near = isLiteral(there) ? suggestion(wanted, upstreams.keys()) : '';
    fault(there.span.start, path, `there is no upstream of this name${near}${origin(there)}`);
  } else if (upstream.value.kind === 'branch' && isGiven(upstream.value.entries.get('builtin')?.value)) {
    fault(there.span.start, path, 'is a builtin, which keeps no objects');
  } else if (nodeText(upstream.value, 'protocol') === 'anthropic') {
    fault(there.span.start, path, 'has `protocol: anthropic`, and these paths are of the other API');
  } else if (!isEnabled(upstream.value))
    warn(there.span.start, path, 'is disabled: these calls get a 503 upstream_out_of_service');
}

/** Two listeners can share a port only on different addresses, neither of them the wildcard. */
function checkListeners(tree: YamlMapping, port: number | undefined, fault: ReportFault): void {
  const ports = [
    port ?? Number(nodeText(tree, 'listen', 'port') ?? '8080'),
    Number(nodeText(tree, 'admin', 'port') ?? '9090'),
  ];
  const hosts = [
    nodeText(tree, 'listen', 'host') ?? '127.0.0.1',
    nodeText(tree, 'admin', 'host') ?? '127.0.0.1',
  ];
  const overlap = hosts[0] === hosts[1] || hosts.some((host) => host === '0.0.0.0' || host === '::');
  if (ports[0] !== ports[1] || ports[0] === 0 || !overlap) return;
  const place =
    findNode(tree, ['admin', 'port']) ?? findNode(tree, ['listen', 'port']) ?? findNode(tree, ['listen']);
  const from = port === undefined ? '' : ', which the environment variable PORT sets';
  fault(place?.node.span.start ?? 0, ['admin', 'port'], `is the port of \`listen\` as well${from}`);
}

/** Warns about what a model says about the choice of a target, where that has no effect. */
function checkRouting(name: string, model: YamlNode, warn: ReportFault): void {
  const affinity = findNode(model, ['affinity'])?.node;
  if (affinity !== undefined && isGiven(affinity) && nodeText(model, 'balance') !== 'affinity')
    warn(affinity.span.start, ['models', name, 'affinity'], 'has no effect without `balance: affinity`');
  if (itemsOf(model, 'targets').length !== 1) return;
  for (const field of ['fallback_on', 'hedge']) {
    const node = findNode(model, [field])?.node;
    if (node !== undefined && isGiven(node) && !(node.kind === 'list' && node.items.length === 0))
      warn(node.span.start, ['models', name, field], 'has no effect, because the model has only one target');
  }
}

/** Without Redis each worker would grant every limit in full, and would miss revocations. */
function checkWorkers(tree: YamlMapping, fault: ReportFault): void {
  const workers = findNode(tree, ['workers'])?.node;
  const text = nodeText(workers);
  const count = text === 'auto' ? undefined : readInteger(text ?? '1');
  const isOne = text === undefined || (count !== undefined && (!count.ok || count.value <= 1));
  if (workers === undefined || isOne || isGiven(tree.entries.get('redis')?.value)) return;
  fault(
    workers.span.start,
    ['workers'],
    'needs `redis`, through which workers share limits and learn of revoked keys',
  );
}

/**
 * @param tree the whole file
 * @param text what it was read from
 * @param port override of `listen.port` by the environment
 */
export function checkReferences(
  tree: YamlMapping,
  text: string,
  port: number | undefined,
  env: NodeJS.ProcessEnv,
): Findings {
  const faults: YamlPosition[] = [];
  const warnings: YamlPosition[] = [];
  const fault: ReportFault = (at, path, message) => void faults.push({ at, path, message });
  const warn: ReportFault = (at, path, message) => void warnings.push({ at, path, message });

  checkListeners(tree, port, fault);
  checkListenerTls(tree, 'listen', fault, warn);
  checkListenerTls(tree, 'admin', fault, warn);
  checkTrustedProxies(tree, warn);
  checkTimeouts(tree, warn);
  checkWorkers(tree, fault);
  checkOutbound(tree, env, fault, warn);
  const secret = findNode(tree, ['secret'])?.node;
  const store = findNode(tree, ['store'])?.node;
  const address = readStore(nodeText(store) ?? '');
  // Only beside a SQLite file can one be generated.
  if (store !== undefined && address.ok && !('path' in address.value) && !isGiven(secret))
    fault(store.span.start, ['store'], 'is no SQLite file, so `secret` has to be set');
  const length = nodeText(secret)?.trim().length ?? 0;
  if (secret !== undefined && length > 0 && length < 32) {
    warn(secret.span.start, ['secret'], 'is shorter than 32 characters; use a long random string');
  }
  const upstreams = entriesOf(tree, 'upstreams');
  const models = entriesOf(tree, 'models');
  for (const field of ['upstreams', 'models']) {
    const entry = tree.entries.get(field);
    if (entry?.value.kind === 'branch' && entry.value.entries.size === 0) {
      fault(entry.key.start, [field], 'has no entries');
    }
  }
  for (const [name, entry] of upstreams) checkUpstream(name, entry, fault, warn);
  checkUse(tree, warn);
  checkValues(tree, text, [], warn);
  const configured = checkTiers(tree, fault);
  checkPassthrough(tree, upstreams, fault, warn);
  for (const [name, entry] of models) {
    checkTargets(name, entry.value, upstreams, fault, warn);
    checkRouting(name, entry.value, warn);
    checkOldMembers(entry.value, ['models', name], fault, warn);
    checkModelTiers(name, entry, configured, fault);
  }
  checkPrices(tree, fault);
  checkBudgets(tree, fault, warn);
  checkBilling(tree, port, fault, warn);
  return { faults, warnings };
}
