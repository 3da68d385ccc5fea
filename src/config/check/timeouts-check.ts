// Warns about deadlines that truncate responses, or that other settings make ineffective. It checks the effective values per target:
// those of target, model and upstream, together with `retry`, `stream` and `hedge`.

import { formatDuration, readDecimal, readDuration } from '../schema/units.ts';
import {
  findNode,
  nodeText,
  type ReportFault,
  type YamlMapping,
  type YamlNode,
  type YamlPath,
} from '../source/yaml-tree.ts';

/** Default timeout of OpenAI's SDKs. */
const SDK_WAIT_MS = 600_000;
/** Vendors and gateways send a comment or ping on a silent stream every 10 to 30 s. */
const PING_MS = 30_000;

/** Name parts of reasoning models, which may think for minutes. */
const THINKING =
  /(^|[/.:_-])(o[134]|gpt-5|gpt-oss|codex|r1|qwq|magistral|deep-research|reason(er|ing)|think(er|ing)?)(?![a-z0-9])/i;

const FIELDS = ['headers', 'first_token', 'idle', 'total'] as const;
type Field = (typeof FIELDS)[number];

/** A duration set in the file. */
interface Given {
  readonly ms: number;
  readonly at: number;
  readonly path: YamlPath;
}

function givenAt(tree: YamlNode, ...path: YamlPath): Given | undefined {
  const place = findNode(tree, path)?.node;
  const reading = readDuration(nodeText(place) ?? '');
  return reading.ok && place !== undefined ? { ms: reading.value, at: place.span.start, path } : undefined;
}

export function checkTimeouts(tree: YamlMapping, warn: ReportFault): void {
  const seen = new Set<string>();
  /** Reports a warning that several targets share only once. */
  const once = ({ at, path }: Given, message: string): void => {
    const key = `${at} ${message}`;
    if (!seen.has(key)) warn(at, path, message);
    seen.add(key);
  };
  const deadline = givenAt(tree, 'retry', 'deadline');
  const search = deadline?.ms ?? 600_000;
  const commit = givenAt(tree, 'stream', 'commit_after')?.ms ?? 5_000;
  const models = tree.entries.get('models')?.value;
  if (models?.kind !== 'branch') return;
  for (const [name, { value: model }] of models.entries) {
    const list = findNode(model, ['targets'])?.node;
    if (list?.kind !== 'list') continue;
    const after = givenAt(tree, 'models', name, 'hedge', 'after');
    const active = list.items.filter(isActive);
    for (const [index, target] of list.items.entries()) {
      const upstream = nodeText(target, 'upstream') ?? '';
      const places: readonly YamlPath[] = [
        ['models', name, 'targets', index],
        ['models', name],
        ['upstreams', upstream],
      ];
      const of = (field: Field): Given | undefined => {
        for (const place of places) {
          const given = givenAt(tree, ...place, 'timeouts', field);
          if (given !== undefined) return given;
        }
        return undefined;
      };
      const [headers, first, idle, total] = FIELDS.map(of);
      const totalMs = total?.ms ?? 3_600_000;
      for (const each of [headers, first, idle]) {
        if (each === undefined) continue;
        if (each.ms > totalMs)
          once(each, `is longer than \`total\` (${formatDuration(totalMs)}), so it never takes effect`);
        else if (each !== idle && each.ms > search)
          once(
            each,
            `is longer than \`retry.deadline\` (${formatDuration(search)}), so it never takes effect`,
          );
        if (each !== idle && after !== undefined && after.ms >= each.ms && active.length > 1)
          once(
            after,
            `is not shorter than \`${String(each.path.at(-1))}\` (${formatDuration(each.ms)}), so no hedge request is ever sent`,
          );
      }
      if (deadline !== undefined && total !== undefined && deadline.ms < total.ms)
        once(
          deadline,
          `is shorter than \`total\` (${formatDuration(total.ms)}): JSON responses, whose headers come only when they are complete, end there`,
        );
      if (first !== undefined && first.ms >= commit && active.length > 1)
        once(
          first,
          `is not shorter than \`stream.commit_after\` (${formatDuration(commit)}), after which no other target is tried; raise that, or lower this`,
        );
      if (idle !== undefined && idle.ms < PING_MS)
        once(
          idle,
          `is shorter than ${formatDuration(PING_MS)}, and upstreams may stay silent that long while they think`,
        );
      const there = nodeText(target, 'model') ?? '';
      if (!THINKING.test(name) && !THINKING.test(there)) continue;
      if (total !== undefined && total.ms < SDK_WAIT_MS)
        once(
          total,
          `ends responses of a model that may think for longer; OpenAI's SDKs wait for ${formatDuration(SDK_WAIT_MS)}`,
        );
      if (headers !== undefined && headers.ms < SDK_WAIT_MS)
        once(
          headers,
          `ends JSON responses of a model that may think for longer, because their headers come only when they are complete; OpenAI's SDKs wait for ${formatDuration(SDK_WAIT_MS)}`,
        );
    }
  }
}

/** Whether the target has a weight above 0, so that it gets requests. */
function isActive(target: YamlNode): boolean {
  const weight = readDecimal(nodeText(target, 'weight') ?? '1');
  return !weight.ok || weight.value > 0;
}
