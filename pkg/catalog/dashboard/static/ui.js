// The library, as the other modules use it: html`…` makes elements, and all text in them is inserted as text.
import { h, render } from './vendor/preact.mjs';
import { useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from './vendor/hooks.mjs';
import htm from './vendor/htm.mjs';

export const html = htm.bind(h);
export { render, useEffect, useId, useLayoutEffect, useMemo, useRef, useState };
