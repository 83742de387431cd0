// Package chromium drives a page in a headless Chromium, for tests of what the repository gives to browsers. Without
// the build tag browser it is empty: no test of an ordinary run needs a browser.
package chromium
