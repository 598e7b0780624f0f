// Package docs reads the documents: their headings, links and blocks. Its tests hold the documents to what the program
// does; test/ reads from them the commands that need clusters.
package docs
