/**
 * Letters for the map's labels, drawn by this browser in its own font, so that no font is shipped or fetched.
 *
 * MapLibre asks for 256 characters at a time, as a protocol buffer of signed distances to each letter's edge.
 */

const SIZE = 24; // pixels, as MapLibre expects
const BORDER = 3;
const REACH = 8; // pixels from the edge within which distances count
const EDGE = 0.25; // how far outside the edge the value 0 lies, as a share of REACH
const ASCENT = 26; // from the top of a line to its baseline
const FONTS = { Regular: "500", Bold: "700" };

/** Whole numbers, seven bits a byte. */
function varint(value) {
  const bytes = [];
  for (; value > 127; value >>>= 7) bytes.push((value & 127) | 128);
  return [...bytes, value];
}

const whole = (field, value) => [...varint(field << 3), ...varint(value)];
const signed = (field, value) => whole(field, value < 0 ? -2 * value - 1 : 2 * value);
const bytes = (field, content) => [...varint((field << 3) | 2), ...varint(content.length), ...content];
const text = (field, content) => bytes(field, new TextEncoder().encode(content));

/** Distances to the edge of a letter, from how much of each pixel it covers. */
function distances(cover, width, height) {
  const result = new Uint8Array(width * height);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      let [outside, inside] = [REACH, REACH];
      for (let v = Math.max(0, y - REACH); v <= Math.min(height - 1, y + REACH); v += 1) {
        for (let u = Math.max(0, x - REACH); u <= Math.min(width - 1, x + REACH); u += 1) {
          const share = cover[v * width + u];
          const away = Math.hypot(u - x, v - y);
          if (share > 0) outside = Math.min(outside, away + 0.5 - share);
          if (share < 1) inside = Math.min(inside, away + share - 0.5);
        }
      }
      const distance = cover[y * width + x] > 0.5 ? -inside : outside;
      result[y * width + x] = Math.max(0, Math.min(255, 255 - 255 * (distance / REACH + EDGE)));
    }
  }
  return result;
}

function glyph(context, code) {
  const letter = String.fromCharCode(code);
  const box = context.measureText(letter);
  const [start, ascent] = [Math.floor(-box.actualBoundingBoxLeft), Math.ceil(box.actualBoundingBoxAscent)];
  const inner = Math.max(Math.ceil(box.actualBoundingBoxRight) - start, 0);
  const tall = Math.max(ascent + Math.ceil(box.actualBoundingBoxDescent), 0);
  const metrics = [
    ...whole(1, code), ...whole(3, inner), ...whole(4, tall), ...signed(5, start), ...signed(6, ascent - ASCENT),
    ...whole(7, Math.round(box.width)),
  ]; // prettier-ignore
  if (!inner || !tall) return metrics;
  const [width, height] = [inner + 2 * BORDER, tall + 2 * BORDER];
  context.clearRect(0, 0, width, height);
  context.fillText(letter, BORDER - start, BORDER + ascent);
  const pixels = context.getImageData(0, 0, width, height).data;
  const cover = Float32Array.from({ length: width * height }, (_, index) => pixels[4 * index + 3] / 255);
  return [...metrics, ...bytes(2, distances(cover, width, height))];
}

/** The letters of a range such as "0-255". @param {string} font One of FONTS. @param {string} range */
export function letters(font, range) {
  const context = new OffscreenCanvas(3 * SIZE, 3 * SIZE).getContext("2d", { willReadFrequently: true });
  context.font = `${FONTS[font] ?? FONTS.Regular} ${SIZE}px system-ui, "Segoe UI", Roboto, sans-serif`;
  const [first, last] = range.split("-").map(Number);
  const stack = [...text(1, font), ...text(2, range)];
  for (let code = Math.max(first, 32); code <= last; code += 1) {
    if (code >= 127 && code < 160) continue; // control characters
    for (const byte of bytes(3, glyph(context, code))) stack.push(byte);
  }
  return new Uint8Array(bytes(1, stack)).buffer;
}

/** The addresses that MapLibre asks for letters at, which never leave this page. */
export const GLYPHS = "letters://{fontstack}/{range}";

/** Answer a request for letters. @param {{url: string}} request */
export async function answerLetters({ url }) {
  const [font, range] = url.slice("letters://".length).split("/");
  return { data: letters(decodeURIComponent(font), range) };
}
