// Cross-field checks: references to other names, mutually exclusive fields, unreachable models. It reads the tree instead of the
// parsed output, so that an invalid field hides no other fault.
import { readStore } from '../schema/addresses.ts';
import { TIERS } from '../schema/config-schema.ts';
import { ENDPOINTS, ENDPOINTS_OF, type Protocol } from '../schema/endpoint-names.ts';
import { readDecimal, readInteger, type ScalarResult } from '../schema/units.ts';
import { commentFault, origin, suggestion } from '../source/schema-issues.ts';
import { isLiteral, type YamlMapping } from '../source/yaml-tree.ts';
import { checkBilling } from './billing-check.ts';
import { checkBudgets } from './budget-check.ts';
import { ConfigField, type Findings } from './config-field.ts';
import { checkListenerTls } from './listener-tls-check.ts';
import { checkOutbound } from './outbound-check.ts';
import { checkPrices } from './price-check.ts';
import { checkTrustedProxies } from './proxies-check.ts';
import { checkTimeouts } from './timeouts-check.ts';
import { checkOldMembers, checkUpstream, checkUse } from './upstream-check.ts';

/** A whole value that is a variable elsewhere: in a shell, on Windows, in manifests of Kubernetes, in templates, in LiteLLM's file. */
const VARIABLE = /^(\$\w+|\$env:\w+|%\w+%|\$\(\w+\)|\{\{.*\}\}|os\.environ\/\w+|ENV\[.*\])$/;

function missingUpstream(
  node: Parameters<typeof isLiteral>[0],
  wanted: string,
  names: Iterable<string>,
): string {
  if (!isLiteral(node)) return `there is no upstream of this name${origin(node)}`;
  // Only a plausible name is quoted; other text may be a misplaced credential.
  const name = /^[\w./-]{1,64}$/.test(wanted) ? `\`${wanted}\`` : 'of this name';
  return `there is no upstream ${name}${suggestion(wanted, names)}`;
}

function checkTargets(model: ConfigField, upstreams: ReadonlyMap<string, ConfigField>): void {
  const all = model.at('targets');
  const targets = all.items;
  /** By priority: total weight of the group, and its first target. */
  const groups = new Map<number, { weight: number; first: ConfigField }>();
  const upstreamOf = (target: ConfigField) => upstreams.get(target.at('upstream').text ?? '');
  const protocols = targets.map((target) => protocolOf(upstreamOf(target)));
  const protocol = protocols.find((each) => each !== undefined) ?? 'openai';
  for (const item of model.at('endpoints').items) {
    const listed = ENDPOINTS.find((each) => each === item.text);
    if (listed === undefined || ENDPOINTS_OF[protocol].includes(listed)) continue;
    const others = ENDPOINTS_OF[protocol].join(', ');
    item.fault(`needs upstreams of another \`protocol\`; those with \`${protocol}\` have: ${others}`);
  }
  for (const [index, target] of targets.entries()) {
    const upstream = target.at('upstream');
    const { node, text: wanted } = upstream;
    if (node?.kind === 'leaf' && wanted !== undefined && wanted !== '' && !upstreams.has(wanted)) {
      upstream.fault(missingUpstream(node, wanted, upstreams.keys()));
    }
    if (node !== undefined && (protocols[index] ?? protocol) !== protocol)
      upstream.fault(
        'speaks another `protocol` than the first target; all targets of a model speak the same',
      );
    const there = target.at('model');
    const stars = there.text?.split('*').length ?? 1;
    if (stars > 2) there.fault('has more than one `*`');
    else if (stars === 2 && !model.name.includes('*'))
      there.fault('has a `*`, but the name of this model has none');
    const priority = readInteger(target.at('priority').text ?? '1');
    if (!priority.ok || target.node?.kind !== 'branch') continue;
    const group = groups.get(priority.value) ?? { weight: 0, first: target };
    groups.set(priority.value, { ...group, weight: group.weight + weightOf(target) });
  }
  const isUsed = (target: ConfigField) =>
    isEnabled(target) && isEnabled(upstreamOf(target)) && weightOf(target) !== 0;
  const [first] = targets;
  if (first === undefined) return;
  if (!targets.some(isUsed)) {
    const message =
      'no target is in service (`enabled`, `weight`): requests for this model get a 503 upstream_out_of_service';
    first.warnOf(all.path, message);
    return;
  }
  for (const [priority, group] of groups) {
    if (group.weight !== 0) continue;
    const weight = group.first.at('weight');
    const at = weight.node === undefined ? group.first : weight;
    at.warnOf(weight.path, `no target of priority ${priority} has a weight above 0: they get no requests`);
  }
}

/** The API that an upstream speaks; undefined for an unknown upstream. */
function protocolOf(upstream: ConfigField | undefined): Protocol | undefined {
  return upstream && (upstream.at('protocol').text === 'anthropic' ? 'anthropic' : 'openai');
}

/** An invalid weight counts as 1: it has a fault already. */
function weightOf(target: ConfigField): number {
  const weight = readDecimal(target.at('weight').text ?? '1');
  return weight.ok ? Math.abs(weight.value) : 1;
}

/** Whether an upstream or a target is not taken out of service. */
function isEnabled(entry: ConfigField | undefined): boolean {
  return entry?.at('enabled').text !== 'false';
}

/** @param configured the offered tiers; undefined when their section is invalid */
function checkModelTiers(model: ConfigField, configured: readonly string[] | undefined): void {
  const listed = model.at('tiers');
  if (listed.node?.kind !== 'list') return;
  const { items } = listed;
  if (items.length === 0) {
    listed.fault('is empty, so that no key can reach this model; leave it out for all tiers');
    return;
  }
  const seen = new Set<string>();
  let readable = true;
  for (const item of items) {
    const tier = item.text;
    if (!TIERS.some((known) => known === tier)) readable = false;
    else if (tier !== undefined && seen.has(tier)) item.fault('is listed twice');
    if (tier !== undefined) seen.add(tier);
  }
  if (readable && configured !== undefined && !configured.some((tier) => seen.has(tier)))
    listed.key.fault(
      `lists no tier that is on offer, so that no key can reach this model; \`tiers\` has ${configured.map((tier) => `\`${tier}\``).join(', ')}`,
    );
}

/** @returns the offered tiers; undefined when the section is invalid */
function checkTiers(file: ConfigField): readonly string[] | undefined {
  const section = file.at('tiers');
  if (!section.isGiven) return TIERS;
  if (section.node?.kind !== 'branch') return undefined;
  const tiers = section.entries;
  if (tiers.length === 0) {
    section.key.fault('offers no tier; leave it out to offer all three');
    return undefined;
  }
  const known = tiers.filter(({ name }) => TIERS.some((tier) => tier === name));
  for (const tier of known) {
    const price = tier.at('stripe_price');
    if (price.isGiven && !file.at('billing').isGiven) price.fault('needs the section `billing`');
  }
  return known.length === tiers.length ? known.map(({ name }) => name) : undefined;
}

function checkPassthrough(file: ConfigField, upstreams: ReadonlyMap<string, ConfigField>): void {
  const there = file.at('passthrough', 'upstream');
  const { node, text: wanted } = there;
  if (node?.kind !== 'leaf' || wanted === undefined || wanted === '') return;
  const upstream = upstreams.get(wanted);
  if (upstream === undefined) there.fault(missingUpstream(node, wanted, upstreams.keys()));
  else if (upstream.at('builtin').isGiven) there.fault('is a builtin, which keeps no objects');
  else if (upstream.at('protocol').text === 'anthropic')
    there.fault('has `protocol: anthropic`, and these paths are of the other API');
  else if (!isEnabled(upstream)) there.warn('is disabled: these calls get a 503 upstream_out_of_service');
}

/** Two listeners can share a port only on different addresses, neither of them the wildcard. */
function checkListeners(file: ConfigField, port: number | undefined): void {
  const [listen, admin] = [file.at('listen'), file.at('admin')];
  const ports = [port ?? Number(listen.at('port').text ?? '8080'), Number(admin.at('port').text ?? '9090')];
  const hosts = [listen, admin].map((listener) => listener.at('host').text ?? '127.0.0.1');
  const overlap = hosts[0] === hosts[1] || hosts.some((host) => host === '0.0.0.0' || host === '::');
  if (ports[0] !== ports[1] || ports[0] === 0 || !overlap) return;
  const own = admin.at('port');
  const place = [own, listen.at('port'), listen].find(({ node }) => node !== undefined) ?? listen;
  const from = port === undefined ? '' : ', which the environment variable PORT sets';
  place.faultOf(own.path, `is the port of \`listen\` as well${from}`);
}

/** Warns about what a model says about the choice of a target, where that has no effect. */
function checkRouting(model: ConfigField): void {
  const affinity = model.at('affinity');
  if (affinity.isGiven && model.at('balance').text !== 'affinity')
    affinity.warn('has no effect without `balance: affinity`');
  if (model.at('targets').items.length !== 1) return;
  for (const place of [model.at('fallback_on'), model.at('hedge')])
    if (place.isGiven && !(place.node?.kind === 'list' && place.items.length === 0))
      place.warn('has no effect, because the model has only one target');
}

/** Without Redis each worker would grant every limit in full, and would miss revocations. */
function checkWorkers(file: ConfigField): void {
  const workers = file.at('workers');
  const { text = '1' } = workers;
  const count = text === 'auto' ? undefined : readInteger(text);
  const isOne = count !== undefined && (!count.ok || count.value <= 1);
  if (!isOne && !file.at('redis').isGiven)
    workers.fault('needs `redis`, through which workers share limits and learn of revoked keys');
}

function checkSecret(file: ConfigField): void {
  const [secret, store] = [file.at('secret'), file.at('store')];
  const address = readStore(store.text ?? '');
  // Only beside a SQLite file can one be generated.
  if (address.ok && !('path' in address.value) && !secret.isGiven)
    store.fault('is no SQLite file, so `secret` has to be set');
  const length = secret.text?.trim().length ?? 0;
  if (length > 0 && length < 32) secret.warn('is shorter than 32 characters; use a long random string');
}

/**
 * Warns of values that mean something else than they look like: `color: #1a4fa0` has no value, `$NAME` is no variable.
 * @param text what the file was read from
 */
function checkValues(field: ConfigField, text: string): void {
  const { node } = field;
  for (const each of [...field.entries, ...field.items]) checkValues(each, text);
  if (node?.kind !== 'leaf' && node?.kind !== 'blank') return;
  const comment = commentFault(node, text);
  if (comment !== undefined) field.warn(comment);
  else if (node.kind === 'leaf' && isLiteral(node) && VARIABLE.test(node.value))
    field.warn(`is taken as it is: a variable of the environment is written \`\${NAME}\` here`);
}

/**
 * @param tree the whole file
 * @param text what it was read from
 * @param override of `listen.port` by the environment
 */
export function checkReferences(
  tree: YamlMapping,
  text: string,
  override: ScalarResult<number> | undefined,
  env: NodeJS.ProcessEnv,
): Findings {
  const findings: Findings = { faults: [], warnings: [] };
  const file = ConfigField.root(tree, findings);
  if (override?.ok === false) file.at('listen', 'port').key.fault(override.fault);
  const port = override?.ok ? override.value : undefined;
  checkListeners(file, port);
  checkListenerTls(file, 'listen');
  checkListenerTls(file, 'admin');
  checkTrustedProxies(file);
  checkTimeouts(file);
  checkWorkers(file);
  checkOutbound(file, env);
  checkSecret(file);
  const [upstreams, models] = [file.at('upstreams'), file.at('models')];
  for (const section of [upstreams, models])
    if (section.node?.kind === 'branch' && section.entries.length === 0) section.key.fault('has no entries');
  for (const upstream of upstreams.entries) checkUpstream(upstream);
  checkUse(file);
  checkValues(file, text);
  const configured = checkTiers(file);
  const byName = new Map(upstreams.entries.map((upstream) => [upstream.name, upstream]));
  checkPassthrough(file, byName);
  for (const model of models.entries) {
    checkTargets(model, byName);
    checkRouting(model);
    checkOldMembers(model);
    checkModelTiers(model, configured);
  }
  checkPrices(file);
  checkBudgets(file);
  checkBilling(file, port);
  return findings;
}
