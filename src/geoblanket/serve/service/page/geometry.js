/** Places on the map: the nearest one to a point, and the next one in a direction. */

const EAST_NORTH = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/** Differences in longitude, scaled so that they measure like those in latitude. */
function away([lon, lat], [otherLon, otherLat]) {
  return [(otherLon - lon) * Math.cos((lat * Math.PI) / 180), otherLat - lat];
}

/**
 * The place of some that is nearest to a point.
 * @param {[number, number][]} places Longitude and latitude of all places.
 * @param {number[]} among Numbers of the places to choose from.
 * @param {[number, number]} point
 */
export function nearestPlace(places, among, point) {
  let best = -1;
  let least = Infinity;
  for (const place of among) {
    const [east, north] = away(point, places[place]);
    const distance = east * east + north * north;
    if (distance < least) [best, least] = [place, distance];
  }
  return best;
}

/** The nearest place within 50° of an arrow key's direction, or the same place if there is none. */
export function nextPlace(places, among, from, key) {
  const direction = EAST_NORTH[key];
  const ahead = among.filter((place) => {
    const [east, north] = away(places[from], places[place]);
    const length = Math.hypot(east, north);
    return length > 0 && (east * direction[0] + north * direction[1]) / length > Math.cos((50 * Math.PI) / 180);
  });
  return ahead.length ? nearestPlace(places, ahead, places[from]) : from;
}

/** The point some metres east and north of another. @param {[number, number]} point Longitude and latitude. */
export function beside([lon, lat], east, north) {
  const degree = (Math.PI / 180) * 6371008.8;
  return [lon + east / (degree * Math.cos((lat * Math.PI) / 180)), lat + north / degree];
}

/** The next point in an arrow key's direction, some metres away. */
export const nextPoint = (point, key, metres) => beside(point, ...EAST_NORTH[key].map((step) => step * metres));

/** The box that reaches some metres from a point to all sides. */
export const boxAt = (point, metres) => [beside(point, -metres, -metres), beside(point, metres, metres)];

/** A circle around a point as a line. */
export function circle(point, metres) {
  const angles = Array.from({ length: 97 }, (_, index) => (index * Math.PI) / 48);
  return angles.map((angle) => beside(point, metres * Math.cos(angle), metres * Math.sin(angle)));
}

/** The box around points: [[west, south], [east, north]]. */
export function boxAround(points) {
  const [lon, lat] = [0, 1].map((axis) => points.map((point) => point[axis]));
  return [
    [Math.min(...lon), Math.min(...lat)],
    [Math.max(...lon), Math.max(...lat)],
  ];
}

/** How far two points are apart, metres. */
export function metresApart(point, other) {
  const degree = (Math.PI / 180) * 6371008.8;
  return Math.hypot(...away(point, other)) * degree;
}
