package seed

import (
	"bufio"
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Disk has a file for each lane, in the directory --cache-dir. A file is what a watch of the lane has been
// sent: its initial events and all events since, so that a replica that starts goes on where the file
// ends. It is read as a sibling's answer is, and believed no more.
//
// The bytes are sealed in chunks (AES-256-GCM), with a key from the serving certificate's private key, and
// for one name and [Siblings.Identity]. So nobody without that key can read a file or make one. The end of
// a file may be missing, as after a crash. Then it is of an earlier time. Its methods may be called from
// any goroutine.
type Disk struct {
	dir     string
	secrets bool
	key     func() ([]byte, error) // reads the private key
	written sync.Map               // the *DiskFile that is being written, by its path
}

const (
	diskMagic = "watchfan-cache-1\n"
	saltSize  = 32
	// mostChunk is the size, in bytes, of a whole chunk before it is sealed.
	mostChunk = 64 << 10
	// mostAge is how long after its last write a file is used. kube-apiserver has the history of minutes.
	mostAge = time.Hour
)

// NewDisk returns the directory of opts, which it makes; nil if there is none. key reads the private key,
// and is called for each file. Files that are too old to be used are removed.
func NewDisk(opts *Options, key func() ([]byte, error)) (*Disk, error) {
	if opts.CacheDir == "" {
		return nil, nil
	}
	d := &Disk{dir: opts.CacheDir, secrets: opts.CacheDirSecrets, key: key}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, fmt.Errorf("--cache-dir: %w: give a directory that watchfan may write", err)
	}
	files, _ := filepath.Glob(filepath.Join(d.dir, "*.watch*")) // the pattern is right
	for _, file := range files {
		if age, err := ageOf(file); err == nil && age > mostAge {
			_ = os.Remove(file) // or it is refused when it is opened
		}
	}
	return d, nil
}

// Keeps reports whether the lane of a resource has a file. nil has none. Secrets have none unless they are
// asked for.
func (d *Disk) Keeps(resource string) bool {
	return d != nil && (d.secrets || resource != "v1/secrets") && !strings.ContainsFunc(resource, func(c rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789.-/", c)
	})
}

// file returns the path of a lane's file.
func (d *Disk) file(lane string) string {
	return filepath.Join(d.dir, strings.ReplaceAll(lane, "/", "_")+".watch")
}

func ageOf(file string) (time.Duration, error) {
	info, err := os.Stat(file)
	if err != nil {
		return 0, err
	}
	return time.Since(info.ModTime()), nil
}

// seal is what seals the chunks of one file, in their order.
type seal struct {
	aead  cipher.AEAD
	about []byte
	count uint64
}

func (d *Disk) seal(salt []byte, lane, identity string) (*seal, error) {
	private, err := d.key()
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, private, salt, diskMagic, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &seal{aead: aead, about: []byte(lane + "\n" + identity)}, err
}

// nonce returns the next chunk's nonce: its number, because each file has a key of its own.
func (s *seal) nonce() []byte {
	s.count++
	return binary.BigEndian.AppendUint64(make([]byte, 4, 12), s.count)
}

// DiskFile is a file that is being written. What is written is in the file after Flush at the latest, which does
// not wait for the disk. One goroutine uses it.
type DiskFile struct {
	*bufio.Writer // of whole chunks
	chunks        *chunks
	disk          *Disk
	name          string // once it is complete
}

// chunks seals what is written into a file.
type chunks struct {
	*seal
	file   *os.File
	sealed []byte
	size   int64
}

// Write implements io.Writer: p becomes one chunk, or several if it is longer.
func (c *chunks) Write(p []byte) (int, error) {
	for chunk := range slices.Chunk(p, mostChunk) {
		c.sealed = binary.BigEndian.AppendUint32(c.sealed[:0], uint32(len(chunk)+c.aead.Overhead()))
		c.sealed = c.aead.Seal(c.sealed, c.nonce(), chunk, c.about)
		c.size += int64(len(c.sealed))
		if _, err := c.file.Write(c.sealed); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Create begins the file of a lane. The one before stays until Publish.
func (d *Disk) Create(lane, identity string) (*DiskFile, error) {
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // never fails
	s, err := d.seal(salt, lane, identity)
	if err != nil {
		return nil, err
	}
	name := d.file(lane)
	file, err := os.OpenFile(name+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	c := &chunks{seal: s, file: file}
	f := &DiskFile{bufio.NewWriterSize(c, mostChunk), c, d, name}
	d.written.Store(name, f)
	if _, err = file.Write(append([]byte(diskMagic), salt...)); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Size is the number of bytes that have been flushed.
func (f *DiskFile) Size() int64 { return f.chunks.size }

// Publish puts the file in the place of the one before, if all of it has been written.
func (f *DiskFile) Publish() error {
	if err := f.Flush(); err != nil {
		return err
	}
	return os.Rename(f.name+".new", f.name)
}

// Close flushes and closes the file. One that has not been published is removed.
func (f *DiskFile) Close() error {
	err := errors.Join(f.Flush(), f.chunks.file.Close())
	_ = os.Remove(f.name + ".new")
	f.disk.written.CompareAndDelete(f.name, f)
	return err
}

// Remove removes the file of a lane, if there is one.
func (d *Disk) Remove(lane string) { _ = os.Remove(d.file(lane)) }

// Restored removes all files that are not being written, because etcd was restored: they are of a past that there has
// not been. ResourceVersions may pass those of the files again. d may be nil.
func (d *Disk) Restored() {
	if d == nil {
		return
	}
	files, _ := filepath.Glob(filepath.Join(d.dir, "*.watch"))
	for _, file := range files {
		if _, written := d.written.Load(file); !written {
			_ = os.Remove(file)
		}
	}
}

// Open opens the file of a lane. The reader ends where the file ends, or what is behind is not whole. The
// error says why there is nothing: it is fs.ErrNotExist if there is no file.
func (d *Disk) Open(lane, identity string) (_ io.ReadCloser, err error) {
	file, err := os.Open(d.file(lane))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	if age, err := ageOf(file.Name()); err != nil || age > mostAge {
		return nil, fmt.Errorf("it was written %s ago (%w)", age.Round(time.Second), cmp.Or(err, errTooOld))
	}
	r := &diskReader{file: file}
	head := make([]byte, len(diskMagic)+saltSize)
	if _, err = io.ReadFull(file, head); err != nil || string(head[:len(diskMagic)]) != diskMagic {
		return nil, errForeign
	}
	if r.seal, err = d.seal(head[len(diskMagic):], lane, identity); err != nil {
		return nil, err
	}
	if !r.next() {
		return nil, errForeign
	}
	return r, nil
}

var (
	errTooOld  = errors.New("too long")
	errForeign = errors.New("it is of another cluster, build of kube-apiserver or private key, or damaged")
)

// diskReader reads a file.
type diskReader struct {
	*seal
	file          *os.File
	chunk, sealed []byte
}

// next reads the next chunk, and reports whether there is one that is whole.
func (r *diskReader) next() bool {
	var length [4]byte
	if _, err := io.ReadFull(r.file, length[:]); err != nil {
		return false
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > mostChunk+uint32(r.aead.Overhead()) {
		return false
	}
	if r.sealed == nil {
		r.sealed = make([]byte, mostChunk+r.aead.Overhead())
	}
	if _, err := io.ReadFull(r.file, r.sealed[:n]); err != nil {
		return false
	}
	var err error
	r.chunk, err = r.aead.Open(r.sealed[:0], r.nonce(), r.sealed[:n], r.about)
	return err == nil
}

func (r *diskReader) Read(p []byte) (int, error) {
	if len(r.chunk) == 0 && !r.next() {
		r.chunk = nil
		return 0, io.EOF
	}
	n := copy(p, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}

func (r *diskReader) Close() error { return r.file.Close() }
