// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package image

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

const (
	blockSize = 512
	// maxExtended is the maximum size of a pax header, in bytes.
	maxExtended = 64 << 10
)

// The fields of a header in POSIX ustar format: pax(1), "ustar Interchange Format".
var (
	fieldName     = [2]int{0, 100}
	fieldSize     = [2]int{124, 136}
	fieldChecksum = [2]int{148, 156}
	fieldLink     = [2]int{157, 257}
	fieldPrefix   = [2]int{345, 500}
	fieldNumbers  = [][2]int{{100, 108}, {108, 116}, {116, 124}, fieldSize, {136, 148}, fieldChecksum, {329, 337}, {337, 345}}
)

const (
	typeflag = 156
	// magic is the magic with the version.
	magic = "ustar\x0000"
	// magicAt is where it is.
	magicAt = 257
)

// entry is a file or a directory.
type entry struct {
	name      string
	size      int64
	directory bool
}

// kinds names what an image mustn't contain, by typeflag.
var kinds = map[byte]string{
	'1': "a hard link", '2': "a symbolic link", '3': "a character device", '4': "a block device", '6': "a FIFO", '7': "a contiguous file",
	'g': "a global pax header", 'S': "a sparse file", 'L': "a GNU long name", 'K': "a GNU long link name",
	'D': "a GNU directory listing", 'M': "a GNU multi-volume file", 'V': "a GNU volume name", 'x': "two pax headers for one entry", 'X': "an old pax header",
}

// next returns the next entry, or nil at the end of the archive.
func (a *archive) next() (*entry, error) {
	h, err := a.header()
	if err != nil || h == nil {
		return nil, err
	}
	if h[typeflag] != 'x' {
		return h.entry("")
	}
	path, err := a.extended(h.number(fieldSize))
	if err != nil {
		return nil, err
	}
	if h, err = a.header(); err == nil && h == nil {
		err = unfit(problem.LayerMalformed, "its layer has a pax header without an entry")
	}
	if err != nil {
		return nil, err
	}
	return h.entry(path)
}

// extended reads a pax header, and returns the path, if one is set.
func (a *archive) extended(size int64) (path string, err error) {
	if size > maxExtended {
		return "", unfit(problem.LayerMalformed, "its layer has a pax header of more than %d KiB", maxExtended>>10)
	}
	records, err := a.content(size)
	if err != nil {
		return "", err
	}
	return extended(records)
}

type header []byte

// header reads a header. It returns nil for a block of zeros.
func (a *archive) header() (header, error) {
	h := make(header, blockSize)
	if _, err := io.ReadFull(a.in, h); err != nil {
		return nil, err
	}
	if zero(h) {
		return nil, nil
	}
	if string(h[magicAt:magicAt+len(magic)]) != magic {
		return nil, unfit(problem.LayerMalformed, "its layer isn't a tar archive in POSIX ustar or pax format")
	}
	// star's own format has other fields here.
	if !zero(h[fieldPrefix[1]:]) {
		return nil, unfit(problem.LayerMalformed, "its layer has a tar header with data after its last field")
	}
	for _, f := range fieldNumbers {
		if h.number(f) < 0 {
			return nil, unfit(problem.LayerMalformed, "its layer has a tar header with a number that isn't octal")
		}
	}
	sum := int64(0)
	for i, c := range h {
		if i >= fieldChecksum[0] && i < fieldChecksum[1] {
			c = ' '
		}
		sum += int64(c)
	}
	if h.number(fieldChecksum) != sum {
		return nil, unfit(problem.LayerMalformed, "its layer has a tar header with a wrong checksum")
	}
	return h, nil
}

func (h header) entry(path string) (*entry, error) {
	e := &entry{name: h.text(fieldName), size: h.number(fieldSize)}
	if prefix := h.text(fieldPrefix); prefix != "" {
		e.name = prefix + "/" + e.name
	}
	if path != "" {
		e.name = path
	}
	named := plain.Quote(e.name)
	switch kind := h[typeflag]; kind {
	case '5':
		e.directory = true
	case '0', 0:
	default:
		name, known := kinds[kind]
		if !known {
			name = "an entry of the unknown type " + plain.Quote(string(rune(kind)))
		}
		return nil, unfit(problem.SeveralFiles, "its layer contains %s, %s", name, named)
	}
	switch {
	case h.text(fieldLink) != "":
		return nil, unfit(problem.SeveralFiles, "its layer contains %s with the target of a link", named)
	case e.name == "":
		return nil, unfit(problem.SeveralFiles, "its layer contains an entry without a name")
	case e.directory && e.size != 0:
		return nil, unfit(problem.SeveralFiles, "its layer contains the directory %s with %d bytes", named, e.size)
	case !e.directory && strings.HasSuffix(e.name, "/"):
		return nil, unfit(problem.SeveralFiles, "its layer contains the file %s with the name of a directory", named)
	}
	return e, nil
}

// text returns the text of a field, which ends at its first NUL.
func (h header) text(field [2]int) string {
	text, _, _ := bytes.Cut(h[field[0]:field[1]], []byte{0})
	return string(text)
}

var octal = regexp.MustCompile(`^ *([0-7]*)[ \x00]*$`)

// number returns the number in a field, or -1. An empty field is 0.
func (h header) number(field [2]int) int64 {
	digits := octal.FindSubmatch(h[field[0]:field[1]])
	if digits == nil {
		return -1
	}
	n, err := strconv.ParseInt("0"+string(digits[1]), 8, 64)
	if err != nil {
		return -1
	}
	return n
}

// The keys of a pax header that don't change the content, and the prefixes of such keys.
// Archivers add times, owners, and attributes of the file system.
var (
	numberKeys = []string{"uid", "gid"}
	timeKeys   = []string{"mtime", "atime", "ctime"}
	textKeys   = []string{"uname", "gname", "comment", "SCHILY.dev", "SCHILY.ino", "SCHILY.nlink", "SCHILY.fflags", "RHT.security.selinux"}
	prefixes   = []string{"SCHILY.xattr.", "SCHILY.acl.", "LIBARCHIVE."}

	paxNumber = regexp.MustCompile(`^[0-9]{1,18}$`)
	paxTime   = regexp.MustCompile(`^-?[0-9]{1,18}(\.[0-9]{1,18})?$`)
)

// extended reads the records of a pax header, and returns the path, if one is set.
func extended(records []byte) (path string, err error) {
	seen := map[string]bool{}
	rest := string(records)
	for rest != "" {
		key, value, after, err := record(rest)
		if err != nil {
			return "", unfit(problem.LayerMalformed, "its layer has a malformed pax header")
		}
		rest = after
		switch {
		case seen[key]:
			return "", unfit(problem.LayerMalformed, "its layer has a pax header with two records %s", plain.Quote(key))
		case key == "path":
			path = value
		case slices.Contains(numberKeys, key) && paxNumber.MatchString(value), slices.Contains(timeKeys, key) && paxTime.MatchString(value):
		case slices.Contains(textKeys, key), slices.ContainsFunc(prefixes, func(p string) bool { return len(key) > len(p) && strings.HasPrefix(key, p) }):
		default:
			return "", unfit(problem.LayerMalformed, "its layer has a pax header with the record %s", plain.Quote(key+"="+value))
		}
		if slices.Contains([]string{"path", "uname", "gname"}, key) && (value == "" && key == "path" || strings.Contains(value, "\x00")) {
			return "", unfit(problem.LayerMalformed, "its layer has a pax header with the record %s", plain.Quote(key+"="+value))
		}
		seen[key] = true
	}
	return path, nil
}

var errRecord = errors.New("malformed record")

// record reads one record, which is "length key=value\n". The length includes itself.
func record(records string) (key, value, rest string, err error) {
	digits, _, ok := strings.Cut(records, " ")
	n, err := strconv.ParseUint(digits, 10, 32)
	if !ok || err != nil || digits[0] == '0' || n > uint64(len(records)) || int(n) <= len(digits)+1 {
		return "", "", "", errRecord
	}
	line, ended := strings.CutSuffix(records[len(digits)+1:n], "\n")
	key, value, ok = strings.Cut(line, "=")
	if !ended || !ok || key == "" || strings.Contains(key, "\x00") {
		return "", "", "", errRecord
	}
	return key, value, records[n:], nil
}
