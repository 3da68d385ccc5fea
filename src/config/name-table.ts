// Tables by the name of a model: by exact names, and by patterns with one `*`, which stands for one character or more.

interface Pattern<Value> {
  readonly name: string;
  readonly beginning: string;
  readonly end: string;
  readonly value: Value;
}

interface Found<Value> {
  readonly value: Value;
  /** What `*` stands for; undefined for an exact name. */
  readonly taken?: string;
}

export class NameTable<Value> {
  readonly exact: ReadonlyMap<string, Value>;
  /** The most specific first; equally long ones are ordered by name, so that all replicas agree. */
  readonly patterns: readonly Pattern<Value>[];

  constructor(entries: Iterable<readonly [name: string, value: Value]>) {
    const exact = new Map<string, Value>();
    const patterns: Pattern<Value>[] = [];
    for (const [name, value] of entries) {
      const star = name.indexOf('*');
      if (star === -1) exact.set(name, value);
      else patterns.push({ name, beginning: name.slice(0, star), end: name.slice(star + 1), value });
    }
    this.exact = exact;
    this.patterns = patterns.sort((a, b) => b.name.length - a.name.length || (a.name < b.name ? -1 : 1));
  }

  /** By the exact name, else by the longest pattern. */
  find(name: string): Found<Value> | undefined {
    const value = this.exact.get(name);
    if (value !== undefined) return { value };
    for (const { beginning, end, value: found } of this.patterns)
      if (name.length > beginning.length + end.length && name.startsWith(beginning) && name.endsWith(end))
        return { value: found, taken: name.slice(beginning.length, name.length - end.length) };
    return undefined;
  }
}
