// How amounts and times are written for people.

const factors = {
  n: 1e-9, u: 1e-6, m: 1e-3, '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/**
 * The number that a Kubernetes quantity is ("500m", "64Gi", "1e3"); 0 for what is none.
 * @param {string|number|undefined} text
 */
export function quantity(text) {
  const parts = /^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?$/.exec(String(text ?? '0'));
  return parts ? Number(parts[1]) * factors[parts[2] ?? ''] : 0;
}

const plain = new Intl.NumberFormat('en', { maximumFractionDigits: 2 });
const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

/** @param {number} value */
export const count = (value) => whole.format(value);

/** "1 pod", "2 pods". @param {number} n @param {string} noun */
export const counted = (n, noun) => `${count(n)} ${noun}${n === 1 ? '' : 's'}`;

const inBytes = (resource) => /(^|[-/.])(memory|storage)$|^hugepages-/.test(resource);

const threeDigits = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 });

const unitOf = (value) => ['Ti', 'Gi', 'Mi', 'Ki'].find((unit) => value >= factors[unit]) ?? '';

/** An amount of a resource: "2", "0.25", "64 GiB". @param {string} resource @param {number} value */
export function amount(resource, value) {
  if (!inBytes(resource)) {
    return plain.format(value);
  }
  const unit = unitOf(value);
  return `${threeDigits.format(value / factors[unit])} ${unit}B`;
}

/** How much of how much, in one unit: "2 / 16", "8.5 / 64 GiB". @returns {[string, string]} */
export function amounts(resource, used, of) {
  if (!inBytes(resource)) {
    return [plain.format(used), plain.format(of)];
  }
  const unit = unitOf(of);
  return [threeDigits.format(used / factors[unit]), `${threeDigits.format(of / factors[unit])} ${unit}B`];
}

const resourceNames = { cpu: 'CPU', memory: 'Memory', pods: 'Pods', 'ephemeral-storage': 'Disk' };

/** @param {string} resource its Kubernetes name */
export const resourceName = (resource) => resourceNames[resource] ?? resource;

/** A share of 1 as a percentage; never rounded up to all of it. @param {number|undefined} share */
export function percent(share) {
  if (share === undefined) {
    return '–';
  }
  const hundredths = Math.floor(share * 1e4 + 1e-9) / 100;
  return `${new Intl.NumberFormat('en', { maximumFractionDigits: hundredths > 99 ? 2 : 1 }).format(hundredths)} %`;
}

/** @param {number|undefined} ms */
export function milliseconds(ms) {
  if (ms === undefined) {
    return '–';
  }
  return ms < 1000 ? `${whole.format(ms)} ms` : `${plain.format(ms / 1000)} s`;
}

/** An amount of money: "0.042 EUR". @param {number|undefined} amount @param {string|undefined} currency */
export const price = (amount, currency) => amount === undefined ? '–'
  : [new Intl.NumberFormat('en', { maximumSignificantDigits: 4 }).format(amount), currency].filter(Boolean).join(' ');

/** How long something took or is ago: "12 s", "3 min", "5 h", "2 d". @param {number} ms */
export function duration(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) {
    return `${seconds} s`;
  }
  if (seconds < 3600) {
    return `${Math.floor(seconds / 60)} min`;
  }
  return seconds < 86400 * 2 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}

const moments = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
const clock = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });

/** @param {string|number|Date} at */
export const moment = (at) => moments.format(new Date(at));

/** @param {string|number|Date} at */
export const timeOfDay = (at) => clock.format(new Date(at));
