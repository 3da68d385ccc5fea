// Reading values of which a schema has already said what they are: by path, without a type of its own for each file.
type Step = string | number;

/** What stands at the path, or undefined where the path ends early. */
export function at(value: unknown, ...path: readonly Step[]): unknown {
  let here = value;
  for (const step of path) {
    if (typeof here !== 'object' || here === null) return undefined;
    here = Reflect.get(here, step);
  }
  return here;
}

/** The items of the list at the path; none where there is no list. */
export function items(value: unknown, ...path: readonly Step[]): readonly unknown[] {
  const found = at(value, ...path);
  return Array.isArray(found) ? found : [];
}

/** Names and values of the mapping at the path; none where there is none. */
export function entries(value: unknown, ...path: readonly Step[]): readonly (readonly [string, unknown])[] {
  const found = at(value, ...path);
  return typeof found === 'object' && found !== null && !Array.isArray(found) ? Object.entries(found) : [];
}

export const textAt = (value: unknown, ...path: readonly Step[]): string => String(at(value, ...path) ?? '');
export const numberAt = (value: unknown, ...path: readonly Step[]): number => Number(at(value, ...path));

/** A copy in which one value is another one, or gone (undefined). The path must exist up to its last step. */
export function changed(value: unknown, path: readonly Step[], to: unknown): unknown {
  const copy: unknown = structuredClone(value);
  const last = path.at(-1);
  const parent = at(copy, ...path.slice(0, -1));
  if (last === undefined || typeof parent !== 'object' || parent === null) {
    throw new Error(`there is no ${path.join('.')}`);
  }
  if (to === undefined) Reflect.deleteProperty(parent, last);
  else Reflect.set(parent, last, to);
  return copy;
}

/** Seconds of a duration such as `1m30s`. */
export function seconds(duration: string): number {
  const unit: Readonly<Record<string, number>> = { ms: 0.001, s: 1, m: 60, h: 3600 };
  return [...duration.matchAll(/(\d+)(ms|s|m|h)/g)].reduce(
    (sum, [, count = '', name = '']) => sum + Number(count) * (unit[name] ?? Number.NaN),
    0,
  );
}
