// Package dashboard is the page that shows the federation to people: files for the browser, which read the catalog's
// API and follow its events. Nothing is built, and nothing comes from anywhere else: what static has is what is served.
package dashboard
