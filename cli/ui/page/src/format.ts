// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

const whole = new Intl.NumberFormat("en");

/** count formats an integer. */
export function count(n: number | bigint): string {
  return whole.format(n);
}

/** plural formats a count of things. */
export function plural(n: number, thing: string): string {
  return `${count(n)} ${thing}${n === 1 ? "" : "s"}`;
}

/** short formats a number with at most three digits, such as 12.3k. */
export function short(n: number): string {
  const sign = n < 0 ? "−" : "";
  let size = Math.abs(n);
  for (const unit of ["", "k", "M", "G", "T", "P"]) {
    if (size < 999.5) {
      const digits = unit === "" && Number.isInteger(size) ? 0 : size < 99.95 ? 1 : 0;
      return sign + size.toFixed(digits) + unit;
    }
    size /= 1000;
  }
  return sign + size.toFixed(0) + "E";
}

/** bytes formats a size. */
export function bytes(n: number): string {
  let size = n;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (size < 1023.5) return `${size < 9.95 && unit !== "B" ? size.toFixed(1) : size.toFixed(0)} ${unit}`;
    size /= 1024;
  }
  return `${size.toFixed(1)} TiB`;
}

/** nanoseconds formats a duration. */
export function nanoseconds(n: number): string {
  if (n < 999.5) return `${n.toFixed(0)} ns`;
  if (n < 999_500) return `${(n / 1000).toFixed(1)} µs`;
  return `${(n / 1e6).toFixed(1)} ms`;
}

/** percent formats a percentage of one CPU. */
export function percent(n: number): string {
  return n > 0 && n < 0.01 ? "<0.01%" : `${n.toFixed(n < 10 ? 2 : 1)}%`;
}

/** ago formats how long ago a time was. */
export function ago(at: string | number, now = Date.now()): string {
  const seconds = Math.max(0, Math.round((now - new Date(at).getTime()) / 1000));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}

/** text formats a decoded key or value of a map in one line. */
export function text(value: unknown): string {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return `[${value.map(text).join(" ")}]`;
  if (value !== null && typeof value === "object") {
    return Object.entries(value).map(([name, of]) => `${name}=${text(of)}`).join(" ");
  }
  return typeof value === "bigint" || (typeof value === "number" && Number.isInteger(value)) ? String(value) : JSON.stringify(value);
}
