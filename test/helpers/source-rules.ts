// The rules of the source tree as functions of its text: layers, cycles, names, sizes, shortcuts past the compiler.
// It reads no files; architecture.test.ts feeds it the real tree, and small invented ones to see each rule fail.
import { basename, dirname, join, normalize } from 'node:path/posix';
import { parseSync, Visitor } from 'vite';

/** Path under `src/` → text. */
export type Sources = ReadonlyMap<string, string>;

export interface Finding {
  readonly rule:
    | 'layer'
    | 'cycle'
    | 'missing'
    | 'name'
    | 'folder'
    | 'export'
    | 'size'
    | 'opening'
    | 'any'
    | 'double-cast'
    | 'non-null'
    | 'ts-comment'
    | 'console'
    | 'timer'
    | 'log-record'
    | 'internal'
    | 'state'
    | 'syntax';
  readonly file: string;
  readonly detail: string;
}

/** From the top down. An import may go to any lower layer, to none above, and not across within a layer. */
export const LAYERS: Order = [
  ['main.ts'],
  ['serve.ts'],
  ['app.ts', 'cli'],
  ['composition.ts', 'start-fault.ts'],
  ['app-options.ts', 'live-config.ts'],
  ['process'],
  ['console'],
  ['realtime', 'passthrough', 'billing'],
  ['proxy'],
  ['budgets'],
  ['auth', 'limits', 'upstream', 'usage'],
  ['http', 'store', 'redis'],
  ['telemetry'],
  ['config', 'deadline.ts', 'recent-map.ts', 'repeat.ts', 'single-flight.ts'],
  ['wire'],
  ['errors.ts', 'package-files.ts'],
];

/** The rooms of a layer that has several, in the same order and by the same rule. A file belongs to the longest path. */
export const ROOMS: Readonly<Record<string, Order>> = {
  auth: [['auth'], ['auth/records'], ['auth/hashing'], ['auth/key']],
  billing: [['billing/billing-wiring.ts'], ['billing/pages', 'billing/stripe'], ['billing']],
  cli: [['cli/explain', 'cli/upstreams', 'cli/usage'], ['cli/owners'], ['cli'], ['cli/program']],
  console: [
    ['console/admin-console.ts'],
    ['console/console-server.ts'],
    ['console/pages'],
    ['console/console-page.ts'],
    ['console/api'],
    ['console'],
  ],
  config: [
    ['config'],
    ['config/check'],
    ['config/terms.ts'],
    ['config/source'],
    ['config/schema'],
    ['config/limit-table.ts', 'config/config-fault.ts', 'config/prices.ts', 'config/invisible-characters.ts'],
    ['config/name-table.ts'],
  ],
  http: [
    ['http/admin'],
    ['http'],
    ['http/accept', 'http/body'],
    ['http/exchange', 'http/multipart'],
    ['http/pieces'],
  ],
  limits: [['limits/shared-limiter.ts'], ['limits/memory'], ['limits']],
  proxy: [
    ['proxy'],
    ['proxy/attempts', 'proxy/endpoints', 'proxy/objects', 'proxy/reservation'],
    ['proxy/targets'],
    ['proxy/answer'],
    ['proxy/answer/stream'],
    ['proxy/contracts'],
    ['proxy/request'],
    ['proxy/routes'],
  ],
  realtime: [['realtime/realtime-wiring.ts'], ['realtime/responses'], ['realtime'], ['realtime/websocket']],
  store: [
    ['store/open.ts'],
    ['store/postgres', 'store/sqlite'],
    ['store/sql/sql-store.ts'],
    ['store/sql/usage', 'store/sql/sql-organisation.ts'],
    ['store/sql/search'],
    ['store/sql'],
    ['store/schema'],
    ['store'],
  ],
  telemetry: [['telemetry/traces'], ['telemetry/metrics'], ['telemetry/log']],
  upstream: [
    ['upstream'],
    ['upstream/echo', 'upstream/http', 'upstream/tokens'],
    ['upstream/breaker', 'upstream/outbound', 'upstream/transport.ts', 'upstream/state'],
  ],
  usage: [['usage'], ['usage/outbox'], ['usage/records']],
  wire: [['wire'], ['wire/json']],
};

type Order = readonly (readonly string[])[];

/**
 * Words that stood for a term of the field: the term is the name. Exported functions, classes and types and files are not called so, alone or, for
 * the last line, as a part of a longer name.
 */
const REPLACED_NAMES = new Set(
  (
    'occupant home ask asks account keep kept turn place places part parts caller entry standing settlement resting journal ' +
    'segment spool refusedkeys known mark rest refusal refuse refused outcome look played testprovider told succeed trouble ' +
    'telling hear say most least superseded won claim alone rests cell made'
  ).split(' '),
);
const REPLACED_WORDS = new Set('keeper seeds ledger hopeless unheard slab deed largework'.split(' '));

/** More than this in one folder, and it is two rooms. */
export const MAX_FILES = 15;

export const MAX_LINES = 300;

/** Names that say nothing about what is inside. */
const EMPTY_NAMES = /^(utils?|helpers?|managers?|services?|common|misc)$/;

/** Node has them without a word in its documentation. Members that begin with an underscore are internals, too. */
const NODE_INTERNALS = new Set(
  'httpAllowHalfOpen assignSocket detachSocket shouldKeepAlive chunkedEncoding useChunkedEncodingByDefault exitedAfterDisconnect binding'.split(
    ' ',
  ),
);
/** Modules whose variables there are once per event loop, or that cache their last result. All other state is of objects. */
const MAY_HOLD_STATE = new Set([
  'billing/pages/theme.ts',
  'http/exchange/exchange.ts',
  'http/exchange/write-batch.ts',
  'http/pieces/body-pacing.ts',
  'limits/calendar.ts',
  'telemetry/log/logger.ts',
  'usage/records/utc-hours.ts',
]);
const INTERNALS_FILE = 'http/exchange/node-internals.ts';

/** What writes the log may read its record; to all others it is only written, so that the log decides nothing. */
const MAY_READ_RECORD = /^(telemetry|process)\//;

export function inspect(sources: Sources): Finding[] {
  const findings: Finding[] = [];
  const edges = new Map<string, string[]>();
  const exports = new Map<string, string[]>();
  for (const [file, text] of sources) {
    const read = readSource(file, text);
    findings.push(...read.findings, ...textFindings(file, text));
    const targets = read.imports
      .filter((specifier) => specifier.startsWith('.'))
      .map((specifier) => normalize(join(dirname(file), specifier)));
    edges.set(file, targets);
    for (const name of read.exported) exports.set(name, [...(exports.get(name) ?? []), file]);
    findings.push(...targets.flatMap((target) => edgeFinding(sources, file, target)));
  }
  return [...findings, ...folderFindings([...sources.keys()]), ...exportFindings(exports), ...cycles(edges)];
}

function edgeFinding(sources: Sources, from: string, to: string): Finding[] {
  const finding = (rule: Finding['rule'], detail: string): Finding[] => [{ rule, file: from, detail }];
  // Files beside src (package.json, say) are no modules of a layer.
  if (to.startsWith('..')) return [];
  if (!sources.has(to)) return finding('missing', `${to} does not exist`);
  const isWithin = part(from) === part(to);
  const order = isWithin ? (ROOMS[part(from)] ?? []) : LAYERS;
  const [fromRoom, toRoom] = isWithin ? [roomOf(order, from), roomOf(order, to)] : [part(from), part(to)];
  if (fromRoom === toRoom) return [];
  const [above, below] = [rank(order, fromRoom), rank(order, toRoom)];
  // A file without a layer or a room is reported by itself.
  if (above === -1 || below === -1) return [];
  if (below > above) return [];
  return finding('layer', `imports ${to}, which is ${below === above ? 'beside' : 'above'} it`);
}

/** The folder directly under src, or the file when it lies there itself. */
function part(file: string): string {
  return file.split('/')[0] ?? file;
}

/** The room of a file: the longest of these paths that it is at or below. */
function roomOf(order: Order, file: string): string | undefined {
  const paths = order.flat().filter((path) => file === path || file.startsWith(`${path}/`));
  return paths.sort((one, other) => other.length - one.length)[0];
}

function rank(order: Order, name: string | undefined): number {
  return order.findIndex((row) => name !== undefined && row.includes(name));
}

/** Whether a name, in any case and with any separators, is one of ours where the field has its own. */
function isReplaced(name: string): boolean {
  const words = name.split(/[-_.]|(?<=[a-z0-9])(?=[A-Z])/).map((word) => word.toLowerCase());
  return REPLACED_NAMES.has(words.join('')) || words.some((word) => REPLACED_WORDS.has(word));
}

/** Exported names that two files have, or that LANGUAGE rules replace. */
function exportFindings(exported: ReadonlyMap<string, readonly string[]>): Finding[] {
  const findings: Finding[] = [];
  for (const [name, [file = '', ...others]] of exported) {
    if (others.length > 0)
      findings.push({ rule: 'export', file, detail: `${name} is exported by ${others.join(', ')} too` });
    if (isReplaced(name))
      findings.push({ rule: 'export', file, detail: `${name} has a term of the field instead` });
  }
  return findings;
}

/** The name of an exported function, class or type; undefined for other exports. */
function declaredName(
  declaration: { readonly type: string; readonly id?: unknown } | null,
): string | undefined {
  if (declaration === null || declaration.type === 'VariableDeclaration') return undefined;
  const { id } = declaration;
  return typeof id === 'object' && id !== null && 'name' in id && typeof id.name === 'string'
    ? id.name
    : undefined;
}

/** Folders that are in no order of rooms, or hold too many files, and files whose names can be taken for each other. */
function folderFindings(files: readonly string[]): Finding[] {
  const findings: Finding[] = [];
  const byFolder = Map.groupBy(files, dirname);
  for (const [folder, inside] of byFolder) {
    const first = inside[0] ?? folder;
    const order = ROOMS[part(first)] ?? [[part(first)]];
    if (folder !== '.' && !order.flat().includes(folder))
      findings.push({ rule: 'layer', file: first, detail: `${folder} is no room of ${part(first)}` });
    if (inside.length > MAX_FILES)
      findings.push({ rule: 'folder', file: first, detail: `${inside.length} files in ${folder}` });
  }
  for (const [name, inside] of Map.groupBy(files, (file) => basename(file, '.ts'))) {
    if (isReplaced(name))
      findings.push({ rule: 'name', file: inside[0] ?? name, detail: 'has a term of the field instead' });
    if (inside.length > 1)
      findings.push({
        rule: 'folder',
        file: inside[0] ?? name,
        detail: `also ${inside.slice(1).join(', ')}`,
      });
  }
  return findings;
}

function textFindings(file: string, text: string): Finding[] {
  const findings: Finding[] = [];
  const add = (rule: Finding['rule'], detail: string): void => void findings.push({ rule, file, detail });
  if (rank(LAYERS, part(file)) === -1) add('layer', `${part(file)} is in no layer`);
  const name = file.split(/[/.-]/).find((word) => EMPTY_NAMES.test(word));
  if (name !== undefined) add('name', `"${name}" says nothing about what is inside`);
  const lines = text.replace(/\n$/, '').split('\n').length;
  if (lines > MAX_LINES) add('size', `${lines} lines, more than ${MAX_LINES}`);
  if (!/^(#!.*\n)?(\/\/ ?\S|\/\*)/.test(text)) add('opening', 'does not open with a comment on what it owns');
  return findings;
}

function readSource(
  file: string,
  text: string,
): { imports: string[]; exported: string[]; findings: Finding[] } {
  const imports: string[] = [];
  const exported: string[] = [];
  const findings: Finding[] = [];
  const add = (rule: Finding['rule'], node: { start: number }, detail: string): void => {
    const line = text.slice(0, node.start).split('\n').length;
    findings.push({ rule, file: `${file}:${line}`, detail });
  };
  const result = parseSync(file, text, { lang: 'ts', sourceType: 'module' });
  for (const error of result.errors) findings.push({ rule: 'syntax', file, detail: error.message });
  for (const comment of result.comments) {
    if (/@ts-(ignore|expect-error|nocheck)/.test(comment.value))
      add('ts-comment', comment, comment.value.trim());
  }
  const mayPrint = file === 'main.ts' || file.startsWith('cli/');
  /** Of the access-log record: members that are assigned to, and places where it is only named to reach a member. */
  const written = new Set<string>();
  const named = new Set<string>();
  const addRead = (node: Place): void => {
    if (!MAY_READ_RECORD.test(file)) add('log-record', node, `reads ${text.slice(node.start, node.end)}`);
  };
  for (const node of result.program.body)
    if (node.type === 'VariableDeclaration' && node.kind !== 'const' && !MAY_HOLD_STATE.has(file))
      add('state', node, text.slice(node.start, node.end));
  const visitor = new Visitor({
    CallExpression: (node) => {
      const [callback] = node.arguments;
      const called = text.slice(node.callee.start, node.callee.end);
      const does = callback === undefined ? '' : text.slice(callback.start, callback.end);
      // A command that ends by itself has nothing else to do meanwhile.
      const isLone = file.startsWith('cli/') && called === 'AbortSignal.timeout';
      const judges = called === 'setTimeout' && /\breject\(|GatewayError|#fail\(/.test(does);
      if (file !== 'deadline.ts' && !isLone && (judges || called === 'AbortSignal.timeout'))
        add(
          'timer',
          node,
          `${called} judges others also by what held up this process: startDeadline does not`,
        );
    },
    AssignmentExpression: ({ operator, left }) => {
      if (operator === '=') written.add(placeOf(left));
    },
    ImportDeclaration: (node) => void imports.push(node.source.value),
    ExportAllDeclaration: (node) => void imports.push(node.source.value),
    ExportNamedDeclaration: (node) => {
      if (node.source !== null) imports.push(node.source.value);
      const name = declaredName(node.declaration);
      if (name !== undefined) exported.push(name);
    },
    ImportExpression: (node) => {
      if (node.source.type === 'Literal' && typeof node.source.value === 'string')
        imports.push(node.source.value);
    },
    TSImportType: (node) => void imports.push(node.source.value),
    TSAnyKeyword: (node) => add('any', node, 'any'),
    TSNonNullExpression: (node) => add('non-null', node, text.slice(node.start, node.end)),
    TSAsExpression: (node) => {
      if (node.expression.type === 'TSAsExpression')
        add('double-cast', node, text.slice(node.start, node.end));
    },
    VariableDeclarator: ({ init }) => {
      if (init?.type === 'Identifier' && isRecord(init)) addRead(init);
    },
    MemberExpression: (node) => {
      const { object } = node;
      const name = node.property.type === 'Identifier' ? node.property.name : '';
      if ((NODE_INTERNALS.has(name) || /^_[a-z]/.test(name)) && file !== INTERNALS_FILE)
        add('internal', node, `${name} belongs into ${INTERNALS_FILE}`);
      const isWritten = written.has(placeOf(node));
      if (isRecord(object)) {
        named.add(placeOf(object));
        if (!isWritten) addRead(node);
      }
      if (isRecord(node) && !isWritten && !named.has(placeOf(node))) addRead(node);
      if (!mayPrint && object.type === 'Identifier' && object.name === 'console') {
        add('console', node, text.slice(node.start, node.end));
      }
    },
  });
  visitor.visit(result.program);
  return { imports, exported, findings };
}

interface Place {
  readonly start: number;
  readonly end: number;
}

const placeOf = ({ start, end }: Place): string => `${start}-${end}`;

/** `access`, or the member of that name of anything. */
function isRecord(node: {
  readonly type: string;
  readonly name?: unknown;
  readonly property?: unknown;
}): boolean {
  const { type, name, property } = node;
  if (type === 'Identifier') return name === 'access';
  if (type !== 'MemberExpression' || typeof property !== 'object' || property === null) return false;
  return 'name' in property && property.name === 'access';
}

/** One finding per group of files that import each other in a ring (depth-first; a file on the path again is a ring). */
function cycles(edges: ReadonlyMap<string, readonly string[]>): Finding[] {
  const findings: Finding[] = [];
  const done = new Set<string>();
  const path: string[] = [];
  const visit = (file: string): void => {
    const at = path.indexOf(file);
    if (at !== -1) {
      findings.push({ rule: 'cycle', file, detail: [...path.slice(at), file].join(' > ') });
      return;
    }
    if (done.has(file)) return;
    path.push(file);
    for (const target of edges.get(file) ?? []) visit(target);
    path.pop();
    done.add(file);
  };
  for (const file of edges.keys()) visit(file);
  return findings;
}
