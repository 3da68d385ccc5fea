// Warns about deadlines that truncate responses, or that other settings make ineffective. It checks the effective values per target:
// those of target, model and upstream, together with `retry`, `stream` and `hedge`.

import { formatDuration, readDecimal, readDuration } from '../schema/units.ts';
import type { ConfigField } from './config-field.ts';

/** Default timeout of OpenAI's SDKs. */
const SDK_WAIT_MS = 600_000;
/** Vendors and gateways send a comment or ping on a silent stream every 10 to 30 s. */
const PING_MS = 30_000;

/** Name parts of reasoning models, which may think for minutes. */
const THINKING =
  /(^|[/.:_-])(o[134]|gpt-5|gpt-oss|codex|r1|qwq|magistral|deep-research|reason(er|ing)|think(er|ing)?)(?![a-z0-9])/i;

const FIELDS = ['headers', 'first_token', 'idle', 'total'] as const;

/** A duration set in the file. */
interface Given {
  readonly ms: number;
  readonly field: ConfigField;
}

function given(field: ConfigField): Given | undefined {
  const reading = readDuration(field.text ?? '');
  return reading.ok ? { ms: reading.value, field } : undefined;
}

export function checkTimeouts(file: ConfigField): void {
  const seen = new Set<string>();
  /** Reports a warning that several targets share only once. */
  const once = ({ field }: Given, message: string): void => {
    const key = `${field.start} ${message}`;
    if (!seen.has(key)) field.warn(message);
    seen.add(key);
  };
  const deadline = given(file.at('retry', 'deadline'));
  const search = deadline?.ms ?? 600_000;
  const commit = given(file.at('stream', 'commit_after'))?.ms ?? 5_000;
  const [inTime, toCommit, ping, sdkWait] = [search, commit, PING_MS, SDK_WAIT_MS].map(formatDuration);
  for (const model of file.at('models').entries) {
    const after = given(model.at('hedge', 'after'));
    const targets = model.at('targets').items;
    const isChoice = targets.filter(isActive).length > 1;
    for (const target of targets) {
      const holders = [target, model, file.at('upstreams', target.at('upstream').text ?? '')];
      const [headers, first, idle, total] = FIELDS.map((field) =>
        holders.map((holder) => given(holder.at('timeouts', field))).find((each) => each !== undefined),
      );
      const totalMs = total?.ms ?? 3_600_000;
      for (const each of [headers, first, idle]) {
        if (each === undefined) continue;
        if (each.ms > totalMs)
          once(each, `is longer than \`total\` (${formatDuration(totalMs)}), so it never takes effect`);
        else if (each !== idle && each.ms > search)
          once(each, `is longer than \`retry.deadline\` (${inTime}), so it never takes effect`);
        if (each !== idle && after !== undefined && after.ms >= each.ms && isChoice) {
          const bound = `\`${each.field.name}\` (${formatDuration(each.ms)})`;
          once(after, `is not shorter than ${bound}, so no hedge request is ever sent`);
        }
      }
      if (deadline !== undefined && total !== undefined && deadline.ms < total.ms) {
        const what = 'JSON responses, whose headers come only when they are complete, end there';
        once(deadline, `is shorter than \`total\` (${formatDuration(total.ms)}): ${what}`);
      }
      if (first !== undefined && first.ms >= commit && isChoice) {
        const what = 'after which no other target is tried; raise that, or lower this';
        once(first, `is not shorter than \`stream.commit_after\` (${toCommit}), ${what}`);
      }
      if (idle !== undefined && idle.ms < PING_MS)
        once(idle, `is shorter than ${ping}, and upstreams may stay silent that long while they think`);
      if (!THINKING.test(model.name) && !THINKING.test(target.at('model').text ?? '')) continue;
      const thinks = 'responses of a model that may think for longer';
      const sdks = `OpenAI's SDKs wait for ${sdkWait}`;
      if (total !== undefined && total.ms < SDK_WAIT_MS) once(total, `ends ${thinks}; ${sdks}`);
      if (headers !== undefined && headers.ms < SDK_WAIT_MS) {
        const why = 'because their headers come only when they are complete';
        once(headers, `ends JSON ${thinks}, ${why}; ${sdks}`);
      }
    }
  }
}

/** Whether the target has a weight above 0, so that it gets requests. */
function isActive(target: ConfigField): boolean {
  const weight = readDecimal(target.at('weight').text ?? '1');
  return !weight.ok || weight.value > 0;
}
